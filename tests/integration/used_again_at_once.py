#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TAKES: 10
"""carrel run does not always wait until the kernel has taken its namespaces down: nothing that comes next may notice.

INV-5: when it returns, everything inside is dead; pid 1 may still be on its way out, with the mounts.
"""
import os
import shutil
import subprocess
import time
import unittest

from carreltest import CARREL, ROOT, CarrelTest, carrel, children, describe, read, reap_until_alone

AGAIN = 30


class UsedAgainAtOnce(CarrelTest):
    def test_a_workspace_can_be_removed_and_made_again(self):
        for number in range(AGAIN):
            self.assertEqual(f"{number}\n", self.ok("-c", f"echo {number} >/file; mkdir -p /a/b; cat /file"))
            shutil.rmtree(self.ws)
            os.mkdir(self.ws)

    def test_a_workspace_can_be_renamed_and_its_mount_points_removed(self):
        for _ in range(AGAIN):
            self.ok("--", "true")
            for name in os.listdir(self.ws):
                os.rmdir(os.path.join(self.ws, name))
            os.rename(self.ws, self.path("moved"))
            os.rename(self.path("moved"), self.ws)

    def test_a_plan_can_have_the_tree_and_a_run_can_have_it_after_the_plan(self):
        for number in range(5):
            self.ok("-c", f"echo {number} >/file")
            done = self.run_in("--plan", "-c", "echo planned >/file")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(f"{number}\n", self.ok("--", "cat", "/file"))
            shutil.rmtree(self.ws + ".carrel-plans")

    def test_a_layer_can_be_used_again(self):
        os.mkdir(self.path("layer"), 0o700)
        os.mkdir(self.path("base"))
        for number in range(AGAIN):
            self.ok("--layer", f"{self.path('base')}:/data:{self.path('layer')}", "-c", f"echo {number} >/data/{number}")
        self.assertEqual(AGAIN, len(os.listdir(self.path("layer", "upper"))))

    def test_nobody_inside_outlives_the_run(self):
        for _ in range(5):
            done = self.run_in("-c", "(while :; do date +%N >/beat; done) & sleep 0.05; exit 3")
            self.assertEqual(3, done.returncode)
            beat = read(self.path("ws", "beat"))
            living = [pid for pid in children() if "carrel-init" not in describe(pid)]
            self.assertEqual([], living)
            time.sleep(0.05)
            self.assertEqual(beat, read(self.path("ws", "beat")))

    def test_pid_1_ends_by_itself(self):
        for _ in range(AGAIN):
            self.ok("--", "true")
        self.assertEqual([], reap_until_alone(5))

    def test_what_it_used_is_told_as_well_as_before(self):
        result, _ = self.json("-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
        self.assertGreater(result["usage"]["cpu_user_ms"], 20)
        self.assertGreater(result["usage"]["peak_rss_bytes"], 500000)

    @unittest.skipUnless(ROOT, "an ordinary user cannot be pid 1 with the host's other namespaces")
    def test_where_nobody_reaps_nobody_is_left(self):
        script = ("import glob, subprocess, sys\n"
                  f"for _ in range(10): subprocess.run({[CARREL, 'run', '--workspace', self.ws, '--', 'true']!r}, check=True)\n"
                  "others = [text for text in (open(p).read() for p in glob.glob('/proc/[0-9]*/stat'))"
                  " if not text.startswith('1 ')]\n"
                  "sys.exit(f'left: {others}' if others else 0)\n")
        done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "/usr/bin/python3", "-c", script],
                              capture_output=True, text=True, check=False)
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    @unittest.skipUnless(ROOT, "only root can mount an image")
    def test_a_file_system_of_its_own_is_free_when_it_is_unmounted(self):
        image, top = self.path("image"), self.path("top")
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        os.mkdir(top)
        try:
            for _ in range(10):
                subprocess.run(["mount", "-n", "-o", "loop", image, top], check=True)
                device = subprocess.run(["findmnt", "-no", "SOURCE", top], capture_output=True, text=True,
                                        check=True).stdout.strip()
                os.makedirs(f"{top}/ws", exist_ok=True)
                for where in (["--workspace", f"{top}/ws"], ["--workspace", self.ws, "--rw", f"{top}/ws:/tmp/it"]):
                    self.succeeded(carrel("run", *where, "--", "true"))
                subprocess.run(["umount", "-n", top], check=True)
                self.assertEqual("", subprocess.run(["losetup", "-j", image], capture_output=True, text=True,
                                                    check=True).stdout, f"{device} is still in use")
        finally:
            subprocess.run(["umount", "-n", "-q", top], check=False)


if __name__ == "__main__":
    unittest.main()
