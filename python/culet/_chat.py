"""`culet chat FOLDER`: a conversation in the terminal."""

import argparse
import os
import sys
from typing import Any, Dict, List, Optional, Sequence

from culet import _library
from culet._library import Error

_HELP = ("Ctrl-C ends an answer, Ctrl-D the program. /new begins a new conversation, /quit ends.")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="culet chat", description="Talk with a model. Sampling is what the checkpoint's "
        "generation_config.json recommends, unless an option says otherwise.", epilog=_HELP)
    made.add_argument("folder", help="the checkpoint: config.json, safetensors, tokenizer.json")
    made.add_argument("--device", help="cpu, cuda or cuda:N (default: a GPU that runs models, else cpu)")
    made.add_argument("--system", metavar="TEXT", help="the system message")
    made.add_argument("--raw", action="store_true",
                      help="no chat template: continue each line as it is")
    made.add_argument("--max-new-tokens", type=int, default=1024, metavar="N")
    made.add_argument("--max-context", type=int, metavar="N")
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

    def answer(self, line: str, write: Any) -> None:
        """Writes the answer to a line, piece by piece. Ctrl-C ends it; what was said is remembered."""
        prompt: Any = line
        if not self._raw:
            prompt = [*self.messages, {"role": "user", "content": line}]
        said: List[str] = []
        interrupted = False
        try:
            for piece in self._llm.stream(prompt, **self._options):
                said.append(piece)
                write(piece)
        except KeyboardInterrupt:
            interrupted = True
        write(" [stopped]\n" if interrupted else "\n")
        if not self._raw:
            self.messages = [*prompt, {"role": "assistant", "content": "".join(said)}]


def _read(prompt: str) -> Optional[str]:
    """A line; None at the end of the input. Ctrl-C begins a new line."""
    while True:
        try:
            return input(prompt)
        except EOFError:
            return None
        except KeyboardInterrupt:
            print(f"\n{_HELP}")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _talk(chat: Chat) -> None:
    terminal = sys.stdin.isatty()
    if terminal:
        try:
            import readline  # noqa: F401  edits lines, where Python has it
        except ImportError:
            pass
        print(_HELP)
    while (line := _read("> " if terminal else "")) is not None:
        if line.strip() == "/quit":
            return
        if line.strip() == "/new":
            chat.reset()
        elif line.strip():
            try:
                chat.answer(line, _write)
            except Error as error:  # too long a conversation, say: the next line may do
                print(f"culet: {error}", file=sys.stderr)
    if terminal:
        print()


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parsed = parser().parse_args(arguments)
    from culet._llm import LLM
    try:
        llm = LLM(parsed.folder, parsed.device, max_context=parsed.max_context)
        if not parsed.raw:
            llm.chat_prompt([{"role": "user", "content": ""}])  # before the first line, not after it
        _talk(Chat(llm, parsed))
    except KeyboardInterrupt:  # while it loads
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's last flush
        return 1
    except _library.Error as error:
        hint = "; or give --raw" if error.status == "NOT_FOUND" and "chat template" in str(error) else ""
        print(f"culet: {error}{hint}", file=sys.stderr)
        return 1
    return 0
