# SPDX-License-Identifier: Apache-2.0
# Made by tools/make_sync.py of carrel/_async: change it there.
