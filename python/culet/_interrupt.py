"""Long calls of the library that Ctrl-C can end."""

import threading


def call(function, stop, name):
    """function() in a thread of its own; its result, or what it raises. Signals wait for the end of a
    foreign call of the main thread, which alone answers them: so that one stays free.

    stop: a c_int32 that the function looks at. An exception here (a signal handler may raise anything)
    sets it to 1, and is raised on when the function has returned: it uses memory of the caller's."""
    lock, done, found = threading.Lock(), threading.Event(), []
    began = cancelled = False

    def work():
        nonlocal began
        with lock:
            if cancelled:
                return
            began = True
        try:
            found.append((function(), None))
        except BaseException as error:  # raised below, in the caller's thread
            found.append((None, error))
        finally:
            done.set()

    stop.value = 0
    try:
        threading.Thread(target=work, name=name).start()
        while not done.wait(0.1):  # a signal that another thread got wakes nobody
            pass
    except BaseException:
        stop.value = 1
        while True:
            try:
                with lock:
                    cancelled = True  # one that has not begun never will
                if began:
                    done.wait()
                break
            except BaseException:  # Ctrl-C again: the function ends soon
                pass
        raise
    result, error = found[0]
    if error is not None:
        raise error
    return result
