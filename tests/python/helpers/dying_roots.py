# SPDX-License-Identifier: Apache-2.0
"""A thread makes and drops tensors; another walks over all that are alive, as every step does.

python tests/python/helpers/dying_roots.py --seconds 60
"""

import argparse
import faulthandler
import threading
import time

import spmdx
import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + 30, exit=True)  # it hangs
    until = time.monotonic() + seconds
    # A storage that nothing but Python holds: a reference to it is taken with the GIL.
    storage = torch.ones(4).to("spmdx").untyped_storage()
    number = torch.ones(1)
    turns = {"uploads": 0, "makes": 0, "storages": 0, "walks": 0}

    def go_on(name, work):
        while time.monotonic() < until:
            work()
            turns[name] += 1

    def uploads():
        tensors = [number.to("spmdx") for _ in range(50)]
        del tensors

    def makes():  # with the GIL
        tensors = [spmdx._C.blank((4,), torch.float32, None) for _ in range(50)]
        del tensors

    def storages():  # PyTorch hands each to Python as long as nobody else holds it
        made = [torch.UntypedStorage(16, device="spmdx") for _ in range(50)]
        del made
        time.sleep(0.002)  # else it keeps the GIL from the others

    def walks():  # without the GIL
        for _ in range(200):
            spmdx._C.recover("")

    threads = [
        threading.Thread(target=go_on, args=(w.__name__, w))
        for w in (uploads, makes, storages, walks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.nbytes() == 16
    print(turns)


if __name__ == "__main__":
    main()
