# SPDX-License-Identifier: Apache-2.0
"""Functions that cannot be replayed are traced, with the reason and the line."""

import collections
import datetime
import io
import logging
import os
import random
import threading
import time
import types
import uuid

import numpy
import pytest
import spmdx
import torch
from torch import nn

ONE = 1.0
COUNTED = []
TABLE = numpy.ones(4, dtype=numpy.float32)
CASES = {}


def case(reason):
    """A function of a tensor, and what is said of it; ``{line}`` is the line behind its first."""

    def note(make):
        CASES[make.__name__] = make, reason
        return make

    return note


class Counter:
    made = 0

    def __init__(self):
        self.calls = 0
        self.last = None
        self.numbers = iter(range(10**6))


@case("print is called at {line}")
def prints(x):
    print("a")
    return x * 2


@case("time.time is called at {line}")
def asks_for_the_time(x):
    since = time.time()
    return x + since * 0


@case("random.Random.random is called at {line}")
def draws(x):
    return x * random.random() * 0


@case("numpy's random generator is drawn from")
def draws_of_numpy(x):
    return x * numpy.random.rand() * 0


@case("is called at {line}")
def asks_the_environment(x):
    return x * len(os.environ.get("HOME", ""))


@case("open is called at {line}")
def reads_a_file(x):
    with open(__file__) as file:
        return x * len(file.name)


@case("a value of the device is read at {line}")
def reads_a_value(x):
    return x * 2 if x.sum().item() > 0 else x


@case("a value of the device is read at {line}")
def branches(x):
    if x.sum() > 0:
        return x * 2
    return x


@case("a value of the device is read")
def prints_a_shape_that_depends_on_values(x):
    return x[x > 0]


@case("a step ends within it, at {line}")
def ends_a_step(x):
    return (x * 2, spmdx.mark_step())[0]


@case("generator of the CPU is drawn from, or seeded")
def draws_on_the_host(x):
    return x * torch.rand(()).to("spmdx") * 0


@case("it copies a tensor from the host")
def copies_from_the_host(x):
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0]).to("spmdx")


@case("whose changes cannot be seen")
def reads_an_array(x):
    return x * float(TABLE[0])


@case("COUNTED has")
def appends(x):
    COUNTED.append(1)
    return x * 2


@case("ONE changed from")
def counts_a_global(x):
    global ONE
    ONE += 1
    return x * 2


def counting():
    calls = 0

    def counts_a_variable(x):
        nonlocal calls
        calls += 1
        return x * calls

    return counts_a_variable


CASES["counts_a_variable"] = counting(), "calls changed from"


def of_object(reason):
    def note(function):
        counter = Counter()
        CASES[function.__name__] = (lambda x: function(counter, x)), reason
        return function

    return note


@of_object("calls changed from")
def counts_an_attribute(counter, x):
    counter.calls += 1
    return x * counter.calls


@of_object("last is another object now: a Tensor")
def keeps_a_tensor_in_a_new_place(counter, x):
    counter.last = x * 2
    return x


@of_object("whose changes cannot be seen")
def takes_the_next_number(counter, x):
    return x * next(counter.numbers)


@case("requires a gradient, whose backward pass does not run within it")
def leaves_the_backward_pass(x):
    return x * nn.Parameter(torch.ones(4, device="spmdx"))


@case("it returns a list_iterator")
def returns_what_may_change(x):
    return x * 2, iter([1])


@case("it returns a Tensor on cpu")
def returns_a_tensor_of_the_host(x):
    return x * 2, torch.ones(2)


@case("manual_seed is called at {line}")
def seeds(x):
    spmdx.manual_seed(1)
    return x * torch.rand(4, device="spmdx")


@case("it changes a setting of PyTorch")
def switches_gradients_off(x):
    torch.set_grad_enabled(not torch.is_grad_enabled())
    return x * 2


@case("a tensor takes over what another one holds")
def copies_an_argument(x):
    BUFFER.copy_(x)
    return BUFFER * 2


@case("a storage grows")
def grows(x):
    y = x * 2
    return y.resize_(8)


@case("changed")
def adds_to_itself(x):
    adds_to_itself.calls = getattr(adds_to_itself, "calls", 0) + 1
    return x * 2


@case("drawn from, or seeded")
def shuffles(x):
    order = torch.randperm(4)
    return x * len(order)


@case("GENERATOR is a torch._C.Generator, whose changes cannot be seen")
def draws_by_a_generator(x):
    return x * torch.rand(4, device="spmdx", generator=GENERATOR)


@case("reads a tensor of the host that changes")
def branches_on_a_counter_of_the_host(x):
    STEPS.add_(1)
    return x * 2 if bool(STEPS > 30) else x


@case("makes a tensor of the host of a number that changes")
def puts_a_number_in_a_tensor(x):
    STEPS.add_(1)
    return x * torch.tensor(STEPS.item())


@case("a number that changes from call to call becomes")
def names_a_number(x):
    STEPS.add_(1)
    return x * len(f"{STEPS.item():.1f}")


@case("a number that changes from call to call becomes what float.__int__ gives")
def rounds_a_number(x):
    STEPS.add_(1)
    return x * int(STEPS.item() / 10)


@case("is called at {line}")
def writes_a_log(x):
    LOG.warning("a")
    return x * 2


@case("is called at {line}")
def asks_for_the_date(x):
    return x * datetime.datetime.now().year


@case("is called at {line}")
def makes_a_name(x):
    return x * len(uuid.uuid4().hex)


@case("is called at {line}")
def starts_a_thread(x):
    threading.Thread(target=len, args=([],)).start()
    return x * 2


@case("TABLES.names has")
def adds_to_a_set(x):
    TABLES.names.add(len(TABLES.names))
    return x * 2


@case("TABLES.queue has")
def pops(x):
    TABLES.queue.popleft()
    return x * 2


@case("TABLES.order[0] changed")
def turns_a_list_round(x):
    TABLES.order.reverse()
    return x * 2


@case("made changed from")
def counts_an_attribute_of_a_class(x):
    Counter.made += 1
    return x * Counter.made


@case("a value of the device is read at {line}")
def gives_a_list(x):
    return x * len(x.tolist())


@case("a value of the device is read at {line}")
def reads_an_argument(x):
    return x * x.data[0].item()


@case("a value of the device is read at {line}")
def gives_an_array(x):
    return x * len(x.cpu().numpy())


@case("it records nothing")
def does_nothing(x):
    return x


class Tables:
    names = {0}
    queue = collections.deque(range(100))
    order = [1, 2]


TABLES = types.SimpleNamespace(**{k: v for k, v in vars(Tables).items() if k[0] != "_"})
LOG = logging.Logger("a")
LOG.addHandler(logging.StreamHandler(io.StringIO()))
STEPS = torch.zeros(())
BUFFER = torch.zeros(4, device="spmdx")
GENERATOR = torch.Generator(device="spmdx")


@pytest.mark.filterwarnings("ignore:.*was compiled and is traced")
@pytest.mark.parametrize("name", CASES)
def test_is_traced_with_the_reason(name):
    function, reason = CASES[name]
    with torch.enable_grad():
        step = spmdx.compile(function)
        x = torch.arange(4.0).to("spmdx")
        for _ in range(5):
            step(x)
    said = " | ".join(step.reasons)
    code = function.__code__
    line = f"test_not_replayed.py:{code.co_firstlineno + 2}"
    assert step.replayed == 0, said
    assert reason.format(line=line) in said
