"""The way of every product: finds its plan by what it depends on, and launches."""

from culet import _stream
from culet._dlpack import NO_SYNC
from culet._launch import launch
from culet._operand import HOST, Operand, operand, stream_of
from culet._plans import PLANS, keep
from culet._problem import plan
from culet._tuning import autotune


def call(form, a, u, b, v, d, c, bias, alpha, beta, accumulate, pdl, epilogue=None, w=None, zeros=None):
    """d = alpha (u . a) (v . b)^T + beta c + bias; u, v, c and bias may be None. c None with a beta
    is d itself. `epilogue` None, or one of GATE_ORDERS; with scales w of d that quantises, too. zeros: None,
    or the zero points of a and b, each of which may be None. Returns the engine's plan; None of an empty d."""
    if zeros is None:
        of_a = of_b = None
    else:
        of_a, of_b = zeros
    try:
        # What no key tells, operand() refuses: memory that does not hold the values (views that negate it), or none.
        pa, pb, pd, pu, pc = a.data_ptr(), b.data_ptr(), d.data_ptr(), None, None
        plain = of_a is None and pa and pb and pd and not (a.is_neg() or b.is_neg() or d.is_neg())
        place, low, given = d.get_device(), pa | pd, 0
        key = (form, pdl, accumulate, epilogue, place,
               a.shape, a.stride(), a.dtype, a.get_device(),
               pb, b.shape, b.stride(), b.dtype, d.shape, d.stride(), d.dtype)
        if u is not None:
            pu = u.data_ptr()
            plain = plain and pu and not u.is_neg()
            low, given = low | pu, 1
            key += u.shape, u.stride(), u.dtype, u.get_device()
        if v is not None:
            plain = plain and not v.is_neg()
            given |= 2
            key += v.data_ptr(), v.shape, v.stride(), v.dtype
        if beta:
            given |= 4
            pc = pd
            if c is not None:
                pc = c.data_ptr()
                plain = plain and pc and not c.is_neg()
                low, given = low | pc, given | 8
                key += c.shape, c.stride(), c.dtype, c.get_device()
        if bias is not None:
            plain = plain and not bias.is_neg()
            given |= 16
            key += bias.data_ptr(), bias.shape, bias.stride(), bias.dtype
        if w is not None:
            plain = plain and not w.is_neg()
            given |= 32
            key += w.data_ptr(), w.shape, w.stride(), w.dtype
        if of_b is not None:
            plain = plain and not of_b.is_neg()
            given |= 64
            key += of_b.data_ptr(), of_b.shape, of_b.stride(), of_b.dtype
        key += given, low & 15 and (pa & 15, pd & 15, pu and pu & 15, pc and pc & 15)
    except (AttributeError, RuntimeError):  # RuntimeError: a tensor without memory
        plain = False
    if not plain:
        return _other_call(form, (a, u, b, v, d, c, bias, w, of_a, of_b), alpha, beta, accumulate, pdl,
                           epilogue)
    found = PLANS.get(key)
    if found is None or (autotune.running and autotune.wants(found)):
        stream = None if place < 0 else _stream.current(place)
        found = plan(form, (a, u, b, v, d, c, bias, w, of_a, of_b), beta, accumulate, pdl, epilogue,
                     stream)
        if found is None:
            return None
        keep(key, found)
    else:
        found.used = True
    stream = None if place < 0 else _stream.current(place)
    workspace = found.workspace and found.engine.workspaces.get(found.workspace, stream)
    launch(found.handle, pa, pu, pc, pd, alpha, beta, workspace, stream)
    return found


# Of a form's operands, the ones that a plan binds: b, v, the bias, w and zero points.
_BOUND = (False, False, True, True, False, False, True, True, True, True)


def _other_call(form, values, alpha, beta, accumulate, pdl, epilogue):
    """Of arrays that are not torch's, at least not all of them."""
    stream, given = None, values
    if not beta:  # c is not read
        values = values[:5] + (None,) + values[6:]
    try:
        pointers, key = [], [form, pdl, accumulate, bool(beta), epilogue]
        for value, bound in zip(values, _BOUND):
            if value is None:
                pointers.append(None)
                key.append(None)
                continue
            shown = value.__array_interface__
            pointer, readonly = shown["data"]
            if not 0 < pointer < 2**64:  # which operand() refuses
                raise LookupError
            pointers.append(pointer)
            key += (pointer if bound else pointer & 15, readonly,
                    shown["shape"], shown["strides"], shown["typestr"], value.dtype)
        key = tuple(key)
        found = PLANS.get(key)
    except (AttributeError, LookupError, TypeError):  # less than numpy shows, or nothing at all
        key = None
    if key is None:
        # The output's stream before others'; only then is it known what the inputs must wait for.
        place = _place(form, values)
        stream = stream_of(place, (values[4], *given))
        values = tuple(value if value is None or isinstance(value, Operand) else
                       operand(name, value, ranks, NO_SYNC if place == HOST else stream)
                       for name, value, ranks in zip(form.names, values, form.ranks))
        key = (form, pdl, accumulate, bool(beta), epilogue, *(
            value if bound or value is None else value._replace(pointer=value.pointer & 15)
            for value, bound in zip(values, _BOUND)))
        pointers = [value and value.pointer for value in values]
        found = PLANS.get(key)
    if found is None or (autotune.running and autotune.wants(found)):
        found = plan(form, values, beta, accumulate, pdl, epilogue, stream)
        if found is None:
            return None
        keep(key, found)
    else:
        found.used = True
    workspace = found.workspace and found.engine.workspaces.get(found.workspace, stream)
    c = (pointers[5] or pointers[4]) if beta else None
    launch(found.handle, pointers[0], pointers[1], c, pointers[4], alpha, beta, workspace, stream)
    return found


def _place(form, values):
    """Where the output is: what a product works on is on one device, or refused."""
    return operand(form.names[4], values[4], form.ranks[4]).place
