"""`culet chat FOLDER`: a conversation in the terminal."""

import argparse
import codecs
import os
import re
import sys
from typing import Any, Dict, List, Optional, Sequence

from culet._library import Error, InvalidArgument

_HELP = ("Ctrl-C ends an answer, Ctrl-D the program. /new begins a new conversation, /quit ends.")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="culet chat", description="Talk with a model. Sampling is what the checkpoint's "
        "generation_config.json recommends, unless an option says otherwise.", epilog=_HELP)
    made.add_argument("folder", help="the checkpoint: config.json, safetensors, tokenizer.json; or a GGUF file")
    made.add_argument("--device", help="cpu, cuda or cuda:N (default: a GPU that runs models, else cpu)")
    made.add_argument("--system", metavar="TEXT", help="the system message")
    made.add_argument("--raw", action="store_true",
                      help="no chat template: continue each line as it is")
    made.add_argument("--max-new-tokens", type=int, default=1024, metavar="N")
    made.add_argument("--max-context", type=int, metavar="N")
    made.add_argument("--tp", type=int, default=1, metavar="N", help="share the model among so many ranks")
    made.add_argument("--temperature", type=float, metavar="X", help="0: the likeliest token")
    made.add_argument("--top-p", type=float, metavar="X")
    made.add_argument("--top-k", type=int, metavar="N")
    made.add_argument("--seed", type=int, metavar="N")
    return made


class Chat:
    """The conversation, and how answers are drawn."""

    def __init__(self, llm: Any, arguments: argparse.Namespace) -> None:
        self._llm, self._raw, self._system = llm, arguments.raw, arguments.system
        self._options = llm.sampling_defaults()
        for name in ("temperature", "top_p", "top_k", "seed"):
            if getattr(arguments, name) is not None:
                self._options[name] = getattr(arguments, name)
        self._options["max_new_tokens"] = arguments.max_new_tokens
        self.messages: List[Dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def answer(self, line: str, write: Any, resume: bool = True) -> None:
        """Writes the answer to a line, piece by piece. Ctrl-C ends it; what was said is remembered, and unless
        `resume` the interrupt is raised on."""
        prompt: Any = line
        if not self._raw:
            prompt = [*self.messages, {"role": "user", "content": line}]
        said: List[str] = []
        interrupted = None
        try:
            for piece in self._llm.stream(prompt, **self._options):
                said.append(piece)
                write(piece)
        except KeyboardInterrupt as error:
            interrupted = error
        write("\n" if interrupted is None else " [stopped]\n")
        if not self._raw:
            self.messages = [*prompt, remembered("".join(said))]
        if interrupted is not None and not resume:
            raise interrupted


def remembered(answer: str) -> Dict[str, str]:
    """An answer as a message. One in channels (harmony) has its last analysis as "thinking" and the others as its
    content, which is where its chat template takes them from; templates of thinking tags find these themselves."""
    parts = _CHANNEL.findall(answer)
    if not parts:
        return {"role": "assistant", "content": answer}
    thoughts = [text for name, text in parts if name == "analysis"]
    message = {"role": "assistant", "content": "".join(text for name, text in parts if name != "analysis")}
    return {**message, "thinking": thoughts[-1]} if thoughts else message


# The name of a channel, and what was said there.
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>(.*?)"
                      r"(?=<\|end\|>|<\|start\|>|<\|channel\|>|\Z)", re.DOTALL)


class _Lost(Exception):
    """A standard stream cannot be used any more; says which, and why."""


class _Lines:
    """The lines of standard input: of a terminal, or of a pipe or a file."""

    def __init__(self) -> None:
        if sys.stdin is None:  # its descriptor was closed when Python began
            raise _Lost("standard input is closed; give it lines, or a terminal")
        self.terminal = sys.stdin.isatty()
        self._first, self._marked = True, False
        # What is not of its encoding is looked at below.
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="surrogateescape")
        if self.terminal:
            try:
                import readline  # noqa: F401  edits lines, where Python has it
            except ImportError:
                pass

    def read(self) -> Optional[str]:
        """A line; None at the end. Ctrl-C begins a new line of a terminal, and is raised otherwise. InvalidArgument
        for a line that is no text."""
        while True:
            try:
                if self.terminal:
                    return self._text(input("> "))
                line = sys.stdin.readline()  # input() would write, if only nothing
                return self._text(line.removesuffix("\n")) if line else None
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self.terminal:
                    raise
                _write(f"\n{_HELP}\n")
            except (OSError, UnicodeEncodeError) as error:
                raise _Lost(f"standard input cannot be read: {error}") from None

    def _text(self, line: str) -> str:
        encoding = getattr(sys.stdin, "encoding", None) or "utf-8"
        first, self._first = self._first, False
        try:
            data = line.encode(encoding, "surrogateescape")
        except UnicodeEncodeError:  # it came otherwise than from bytes
            return line
        if first and data.startswith(codecs.BOM_UTF8):  # which is no text, but says what the rest is
            self._marked, data = True, data[len(codecs.BOM_UTF8):]
        try:
            line.encode()
            if not self._marked:
                return line
        except UnicodeEncodeError:  # bytes that the encoding has not
            pass
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"a line is no text, neither in {encoding} nor in UTF-8 ({error.reason} at byte "
                                  f"{error.start}); convert it to UTF-8") from None


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:  # ValueError: it was closed
        raise _Lost(f"standard output cannot be written: {error}") from None


def _complain(text: str) -> None:
    try:
        sys.stderr.write(f"culet: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # it is full, or closed: the exit status says enough
        pass


def _talk(chat: Chat) -> bool:
    """Whether every line that was not typed was answered."""
    lines, answered = _Lines(), True
    if lines.terminal:
        _write(f"{_HELP}\n")
    while True:
        try:
            line = lines.read()
            if line is None or line.strip() == "/quit":
                break
            if line.strip() == "/new":
                chat.reset()
            elif line.strip():
                chat.answer(line, _write, resume=lines.terminal)
        except Error as error:  # too long a conversation, say: the next line may do
            _complain(str(error))
            answered = lines.terminal
    if lines.terminal:
        _write("\n")
    return answered


def _discard_output() -> None:
    """What Python still holds for stdout goes nowhere: its flush at the end would fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        pass


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    try:
        if sys.stderr is None:  # input() and warnings want one
            sys.stderr = open(os.devnull, "w", encoding="utf-8")
        if sys.stdout is None:
            raise _Lost("standard output is closed; an answer has nowhere to go")
        if hasattr(sys.stdout, "reconfigure"):  # a model may write what a terminal's encoding has not
            sys.stdout.reconfigure(errors="backslashreplace")
        return _run(parser().parse_args(arguments))
    except KeyboardInterrupt:  # while it loads, too
        return 130
    except BrokenPipeError:
        _discard_output()
    except _Lost as error:
        _complain(str(error))
        _discard_output()
    except Error as error:
        hint = "; or give --raw" if error.status == "NOT_FOUND" and "chat template" in str(error) else ""
        _complain(f"{error}{hint}")
    return 1


def _run(parsed: argparse.Namespace) -> int:
    from culet._llm import LLM
    from culet._observe import explain_lost_files
    explain_lost_files(1)
    if sys.stdin is None:
        raise _Lost("standard input is closed; give it lines, or a terminal")
    llm = LLM(parsed.folder, parsed.device, max_context=parsed.max_context,
              tensor_parallel_size=parsed.tp)
    if not parsed.raw:
        llm.chat_prompt([{"role": "user", "content": ""}])  # before the first line, not after it
    return 0 if _talk(Chat(llm, parsed)) else 1
