# SPDX-License-Identifier: Apache-2.0
"""The simulated CUDA device finds races, host accesses, mixed devices; it computes what CPUs do."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from simulated_place import HERE, LIBRARY

pytestmark = pytest.mark.skipif(
    torch.version.cuda is not None, reason="this PyTorch has a CUDA device of its own"
)
PRELUDE = f"""
import sys
sys.path.insert(0, {HERE!r})
import torch
from simulated_place import expect
import torch.nn.functional as F
torch.ops.load_library({str(LIBRARY)!r})
torch.cuda._lazy_init = lambda: None  # or factories with device="cuda" refuse
sim = torch.ops.simulated_cuda
device = sim.to_device

def slow(stream, microseconds=100_000):
    sim.synchronize()
    sim.set_delay(microseconds, stream)
"""


def run_program(program: str, **environment) -> subprocess.CompletedProcess:
    """Runs it in a process of its own: the device stays registered in a process that loads it."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def passes(program: str, **environment) -> str:
    done = run_program(program, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_a_missing_event_is_seen_and_an_event_helps():
    passes("""
        def consume(event):
            x = device(torch.ones(100))
            slow(1)
            sim.use_stream(1)
            y = x + 1
            recorded = sim.record_event()
            sim.use_stream(2)
            if event:
                sim.wait_event(recorded)
            z = sim.to_host(y * 2)
            assert sim.query_event(recorded) == event
            sim.synchronize()
            return z
        assert consume(event=False).isnan().all()
        assert consume(event=True).eq(4).all()
    """)


def test_an_event_is_the_position_at_which_it_was_recorded():
    passes("""
        x = device(torch.ones(100))
        slow(1)
        sim.use_stream(1)
        early = sim.record_event()
        x.add_(1)
        late = sim.record_event()
        sim.synchronize_event(early)
        assert sim.query_event(early) and not sim.query_event(late)
        sim.use_stream(2)
        sim.wait_event(early)
        assert sim.to_host(x).eq(1).all()
        sim.wait_event(late)
        assert sim.to_host(x).eq(2).all()
    """)


def test_the_delay_comes_from_the_environment_a_stream_each():
    passes(
        """
        x = device(torch.ones(100))
        sim.use_stream(1)
        x.add_(1)
        early = sim.record_event()
        sim.use_stream(2)
        x.add_(1)
        late = sim.record_event()
        sim.synchronize_event(late)
        assert not sim.query_event(early)
        """,
        SIMULATED_CUDA_DELAY_US="0,200000,0",
    )


def test_host_code_that_touches_device_memory_dies_and_is_named():
    done = run_program("""
        import ctypes
        ctypes.string_at(device(torch.ones(3)).data_ptr(), 4)
    """)
    assert done.returncode == -11
    assert "host code touched device memory" in done.stderr


def test_freed_memory_is_reused_at_once_and_poisoned():
    passes("""
        x = device(torch.ones(1000))
        address = x.data_ptr()
        slow(1)
        sim.use_stream(1)
        y = x + 1  # reads x late
        sim.use_stream(0)
        del x
        assert device(torch.full((1000,), 5.0)).data_ptr() == address
        assert torch.empty(1001, device="cuda").data_ptr() == address  # the same rounded size
        sim.use_stream(1)
        assert sim.to_host(y).isnan().all()
    """)


def test_on_its_own_stream_freed_memory_is_safe():
    passes("""
        slow(0, 2000)
        x = device(torch.ones(100))
        for _ in range(20):
            x = x + 1
        assert sim.to_host(x).eq(21).all()
        del x
        assert sim.allocated_bytes() == 0
    """)


def test_a_recorded_stream_keeps_memory_until_it_has_passed():
    passes("""
        x = device(torch.ones(100))
        address = x.data_ptr()
        slow(1)
        previous = sim.use_stream(1)
        x.record_stream(torch.Stream(stream_id=1, device_index=0, device_type=1))
        y = x + 1
        sim.use_stream(previous)
        del x
        assert torch.empty(100, device="cuda").data_ptr() != address
        sim.use_stream(1)
        assert sim.to_host(y).eq(2).all()
        sim.use_stream(previous)
        assert torch.empty(100, device="cuda").data_ptr() == address
    """)


def test_new_memory_holds_no_zeros():
    passes("""
        assert torch.empty(3, device="cuda").cpu().isnan().all()
        assert torch.empty(0, device="cuda").add(1).cpu().numel() == 0
    """)


def test_mixed_devices_are_refused_but_for_numbers():
    passes(
        """
        x = device(torch.ones(3, 3))
        text = "Expected all tensors to be on the same device"
        expect(RuntimeError, text, lambda: x + torch.ones(3, 3))
        expect(RuntimeError, text, lambda: x @ torch.ones(3, 3))
        expect(RuntimeError, text, lambda: torch.ones(3, 3).mul_(x))
        expect(RuntimeError, text, lambda: x + sim.to_device(torch.ones(3, 3), 1))
        expect(RuntimeError, text, lambda: torch.add(x, x, out=torch.tensor(0.0)))
        number = torch.tensor(2.0)
        slow(0)
        y = x * number
        number.fill_(7)  # it was read when the operator was called
        assert y.cpu().eq(2).all()
        """,
        SIMULATED_CUDA_DEVICES="2",
    )


def test_kernels_for_cpus_are_refused():
    passes("""
        x = device(torch.ones(1, 2, 4, 8))
        name = "_scaled_dot_product_flash_attention_for_cpu"
        expect(NotImplementedError, name, getattr(torch.ops.aten, name), x, x, x)
    """)


def test_copies_between_devices_are_ordered_with_both_streams():
    passes(
        """
        assert sim.device_count() == 2
        slow(0, 50_000)
        x = device(torch.ones(100)) + 1
        y = sim.to_device(torch.zeros(100), 1)
        y.copy_(x)
        x.add_(1)
        assert y.device.index == 1 and (y * 2).cpu().eq(4).all() and x.cpu().eq(3).all()
        """,
        SIMULATED_CUDA_DEVICES="2",
    )


def test_only_pinned_memory_is_copied_later():
    passes("""
        pinned, plain = sim.pinned(torch.ones(100)), torch.ones(100)
        assert pinned.is_pinned(device="cuda") and not plain.is_pinned(device="cuda")
        x, y, z = (torch.empty(100, device="cuda") for _ in range(3))
        slow(0)
        x.copy_(pinned, non_blocking=True)
        y.copy_(plain, non_blocking=True)
        z.copy_(pinned)
        pinned.fill_(5)
        plain.fill_(5)
        assert x.cpu().eq(5).all() and y.cpu().eq(1).all() and z.cpu().eq(1).all()

        x.copy_(pinned, non_blocking=True)
        del pinned  # its memory lives until it is copied
        assert x.cpu().eq(5).all()
        late = x.to("cpu", non_blocking=True)
        assert late.is_pinned(device="cuda")
        sim.synchronize()
        assert late.eq(5).all()
    """)


def test_an_error_of_a_kernel_appears_at_the_next_synchronisation():
    stderr = passes("""
        x = device(torch.ones(3, 3))
        y = x.index_select(0, device(torch.tensor([7])))
        expect(IndexError, "out of range", sim.synchronize)
        sim.synchronize()
        y = x.index_select(0, device(torch.tensor([7])))
        expect(IndexError, "out of range", y.cpu)
        expect(RuntimeError, "", lambda: x @ device(torch.ones(2, 2)))  # shapes are checked at once
        sim.synchronize()
    """)
    assert "aten::index_select failed: index out of range" in stderr


def test_views_share_memory():
    passes("""
        x = device(torch.arange(24.0).view(4, 6))
        x[1:3, ::2].mul_(10)
        x.t()[0].zero_()
        x.view(-1)[5] = 99
        x.unfold(1, 2, 2)[3, 1, 0] = -1
        x.view(torch.int32)[3, 5] = 0
        want = torch.arange(24.0).view(4, 6)
        want[1:3, ::2] *= 10
        want[:, 0] = 0
        want[0, 5], want[3, 2], want[3, 5] = 99, -1, 0
        assert torch.equal(x.cpu(), want)
        assert x.detach().data_ptr() == x.data_ptr() == x.expand(2, 4, 6).data_ptr()
        z = torch.view_as_complex(x.view(4, 3, 2)).conj()
        w = torch.view_as_complex(want.view(4, 3, 2)).conj()
        assert z.is_conj() and torch.equal((z * 2j).cpu(), w * 2j)
        assert z.imag.is_neg() and torch.equal(z.imag.cpu(), w.imag)
        x.resize_(30)
        assert torch.equal(x.cpu()[:24], want.view(-1))
        assert torch.add(x, x, out=torch.empty(0, device="cuda")).shape == (30,)
    """)


OPERATORS = """
lambda a: a + a * 2
lambda a: a.clone().mul_(3)
lambda a: a @ a.t()
lambda a: a.softmax(1), a.log_softmax(0)
lambda a: a.index_put((rows(a),), a[:3] * 2), a.index_put((rows(a),), a[:3], accumulate=True)
lambda a: a.sort(1), a.topk(2), a.cummax(1), a.max(0)
lambda a: torch.cat([a, a], 1), torch.stack([a, a]), a.split(2, 1)
lambda a: a.sum(), a.sum(0), a.mean(1), a.var(0), a.norm()
lambda a: F.conv2d(a.view(1, 1, 4, 6), torch.ones_like(a[:3, :3]).view(1, 1, 3, 3), padding=1)
lambda a: F.embedding(rows(a), a), a.index_select(0, rows(a)), a[rows(a)]
lambda a: a.gather(0, rows(a).view(3, 1)), a.scatter_add(0, rows(a).view(3, 1), a)
lambda a: torch.ops.aten.embedding_dense_backward(a[:3], rows(a), 4, -1, False)
lambda a: torch.ops.aten.native_layer_norm(a, [6], None, None, 1e-5)
lambda a: F.batch_norm(a, None, None, training=True), F.group_norm(a, 2)
lambda a: torch.where(a > 0, a, 0.0), a.masked_fill(a > 0, 1), a.clamp(0, 1), F.gelu(a), a ** 2
lambda a: a.to(torch.float64), a.half(), a.int(), a.bool()
lambda a: (a > 0).nonzero(), a[a > 0], a.int().unique(), torch.equal(a, a), a[1, 2].item()
lambda a: a.cumsum(0), a.flip(0), a.roll(1, 1), a.repeat(2, 2), a.tril()
lambda a: torch.arange(5, device=a.device), torch.full((2,), 4.5, device=a.device)
lambda a: torch.eye(3, device=a.device), torch.zeros(2, device=a.device), torch.ones_like(a)
lambda a: F.cross_entropy(a, rows(a).new_ones(4)), F.max_pool2d(a.view(1, 1, 4, 6), 2)
lambda a: torch.linalg.svdvals(a), torch.linalg.qr(a), torch.einsum("ij,kj->ik", a, a)
lambda a: torch._foreach_add([a, a], 1.0), a.addmm(a[:, :4], a), a.logsumexp(1), a[:0].sum(0)
""".strip().splitlines()


def test_operators_compute_what_the_cpu_does_bit_for_bit():
    program = """
        from torch.utils._pytree import tree_leaves
        def rows(a):
            return torch.arange(2, -1, -1, device=a.device)
        def gradients(a):
            w = torch.ones_like(a, requires_grad=True)
            F.gelu(a @ w.t()).pow(2).sum().backward()
            return w.grad
        a = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
        b = device(a)
        slow(0, 500)
        for f in FUNCTIONS + [gradients]:
            for want, got in zip(tree_leaves(f(a)), tree_leaves(f(b)), strict=True):
                if isinstance(want, torch.Tensor):
                    assert got.is_cuda
                    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)
                else:
                    assert got == want
        # Of these only the kernel knows the shape, or the result is a number of the host.
        known = "_cummax_helper _local_scalar_dense _unique2 equal index.Tensor_out nonzero"
        assert sim.blocking_operators() == ["aten::" + name for name in known.split()]
    """
    functions = [f"lambda a: ({line.removeprefix('lambda a: ')},)" for line in OPERATORS]
    passes(f"FUNCTIONS = [{', '.join(functions)}]\n" + textwrap.dedent(program))


def test_threads_have_current_streams_of_their_own():
    passes("""
        import threading
        x = device(torch.ones(1000))
        sim.synchronize()
        results = {}
        def work(stream):
            assert sim.use_stream(stream) == 0
            y = x
            for _ in range(50):
                y = y + stream
            results[stream] = y.cpu()
        threads = [threading.Thread(target=work, args=(stream,)) for stream in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for stream in range(1, 9):
            assert results[stream].eq(1 + 50 * stream).all()
        assert sim.use_stream(0) == 0
    """)
