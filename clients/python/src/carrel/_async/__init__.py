# SPDX-License-Identifier: Apache-2.0
"""The client, written once, with async and await. tools/make_sync.py makes carrel/_sync of it: change it here only."""
