"""Seeded streams of bytes that a client might send: requests, pipelined, malformed, split anywhere."""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

CRLF = b"\r\n"


class Case(NamedTuple):
    """What one client sends, segment by segment; the seed makes it again."""

    seed: int
    segments: tuple[bytes, ...]

    @property
    def content(self) -> bytes:
        return b"".join(self.segments)

    def __str__(self) -> str:
        return f"seed {self.seed}, segments {list(self.segments)}"


class Draft:
    """A request in the making."""

    def __init__(self, method: bytes, target: bytes, body: bytes = b"", *headers: bytes) -> None:
        self.method = method
        self.target = target
        self.version = b"HTTP/1.1"
        self.headers: list[bytes] = [b"Host: here", *headers]
        self.body = body
        self.framed = body  # as it is sent

    def bytes(self) -> bytes:
        line = b" ".join((self.method, self.target, self.version))
        return CRLF.join((line, *self.headers, b"", self.framed))


MakeDraft = Callable[[Random], Draft]
Change = Callable[[Random, Draft], None]


def with_length(random: Random, draft: Draft) -> None:
    draft.headers.append(b"Content-Length: %d" % len(draft.body))


def with_chunks(random: Random, draft: Draft) -> None:
    draft.headers.append(b"Transfer-Encoding: chunked")
    draft.framed = b""
    rest = draft.body
    while rest:
        size = random.randint(1, len(rest))
        extension = random.choice([b"", b"", b";a", b";a=b", b';a="b c"'])
        draft.framed += b"%x%b\r\n%b\r\n" % (size, extension, rest[:size])
        rest = rest[size:]
    trailers = [b"", b"", b"", b"X-Trailer: t\r\n", b"Authorization: Bearer t\r\nHost: there\r\n"]
    draft.framed += b"0\r\n%b\r\n" % random.choice(trailers)


def header(*lines: bytes) -> Change:
    """A change that adds one of these."""

    def add(random: Random, draft: Draft) -> None:
        draft.headers.insert(random.randint(0, len(draft.headers)), random.choice(lines))

    return add


def replaced(old: bytes, *new: bytes) -> Change:
    """A change of the framing lines or of the body's framing."""

    def change(random: Random, draft: Draft) -> None:
        value = random.choice(new)
        draft.headers = [line.replace(old, value, 1) for line in draft.headers]
        draft.framed = draft.framed.replace(old, value, 1)

    return change


def version(*versions: bytes) -> Change:
    def change(random: Random, draft: Draft) -> None:
        draft.version = random.choice(versions)

    return change


def method(*methods: bytes) -> Change:
    def change(random: Random, draft: Draft) -> None:
        draft.method = random.choice(methods)

    return change


def without_host(random: Random, draft: Draft) -> None:
    draft.headers = [line for line in draft.headers if not line.startswith(b"Host:")]


def with_upgrade(random: Random, draft: Draft) -> None:
    protocol = random.choice([b"h2c", b"websocket", b"TLS/1.0, HTTP/1.1", b"x"])
    tokens = random.choice([b"Upgrade", b"upgrade, HTTP2-Settings", b"keep-alive, Upgrade"])
    lines = [b"Upgrade: " + protocol, b"Connection: " + tokens, b"HTTP2-Settings: AAMAAABk"]
    random.shuffle(lines)
    draft.headers += lines


def with_bare_line_end(random: Random, draft: Draft) -> None:
    draft.headers.append(b"X-Line: a\nX-Next: b")


def with_broken_chunk(random: Random, draft: Draft) -> None:
    with_chunks(random, draft)
    wrong = [b"+3\r\nabc\r\n", b"-3\r\nabc\r\n", b"0x3\r\nabc\r\n", b"\r\nabc\r\n", b"3\nabc\r\n"]
    wrong += [
        b"3 \r\nabc\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc",
        b"g\r\nabc\r\n",
        b"fffffffffffffffff\r\n",
    ]
    draft.framed = random.choice(wrong) + draft.framed


# The request stays a request.
HARMLESS: tuple[Change, ...] = (
    with_upgrade,
    header(b"Expect: 100-continue"),
    header(b"Connection: close", b"Connection: keep-alive", b"Connection: Close, x"),
    header(b"X-Text: a\xffb", b"X-Blank: \t a \t ", b"X-Empty:", b"Accept: */*"),
    version(b"HTTP/1.0"),
)
# It may become another one, or none.
HARMFUL: tuple[Change, ...] = (
    header(b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 3"),
    header(b"Transfer-Encoding: chunked"),
    header(b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: gzip"),
    header(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked, chunked"),
    replaced(b"Length: ", b"Length: +", b"Length: -", b"Length: 0x", b"Length: 1 "),
    replaced(b"Length: ", b"Length: 0", b"Length: 9", b"Length: 2, ", b"Length:\t"),
    replaced(b"Content-Length: ", b"Content-Length : ", b" Content-Length: "),
    replaced(b"Length: ", b"Length: 99999999999999999999"),
    replaced(b"chunked", b"Chunked ", b"\x0bchunked", b"xchunked", b"chunked;a=b"),
    header(b"X-Fold: a\r\n b", b"X-Fold: a\r\n\tb"),
    header(b"X-Space : a", b"X-Control: a\x01b", b"X-Null: a\x00b", b"X-Return: a\rb"),
    header(b"no colon", b": no name", b"X(: a"),
    with_bare_line_end,
    with_broken_chunk,
    without_host,
    header(b"Host: there", b"Host: here"),
    replaced(b"Host: here", b"Host: here there", b"Host: user@here", b"Host: here:x", b"Host:"),
    version(b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 ", b"", b"HTTP/1"),
    method(b"FOO", b"post", b"CONNECT", b"PRI", b"P OST", b"POST\t", b"POST "),
)
JUNK = (
    *(b"junk", b"junk\r\n\r\n", b"\x00", b"\r\n", b"\r\n\r\n", b"\n", b"GET"),
    *(b"GET /\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
)


def framed(random: Random, draft: Draft) -> None:
    """Say where the body ends, if there is one."""
    if draft.body or draft.method == b"POST":
        random.choice([with_length, with_length, with_chunks])(random, draft)


def changed(random: Random, draft: Draft, *, is_harmed: bool) -> bytes:
    """The request with a body that ends, one change that harms nothing and perhaps one that does."""
    framed(random, draft)
    if random.random() < 0.4:
        random.choice(HARMLESS)(random, draft)
    if is_harmed:
        random.choice(HARMFUL)(random, draft)
    return draft.bytes()


def mangled(random: Random, content: bytes) -> bytes:
    """One byte is lost, doubled or another."""
    place = random.randrange(len(content))
    change = random.choice([b"", content[place : place + 1] * 2, random.randbytes(1)])
    return content[:place] + change + content[place + 1 :]


def stream(random: Random, make: MakeDraft) -> bytes:
    """One to four requests, of which the last may be malformed, cut short or followed by junk."""
    count = random.choice([0, 0, 0, 1, 2, 3])
    content = b"".join(changed(random, make(random), is_harmed=False) for _ in range(count))
    last = changed(random, make(random), is_harmed=random.random() < 0.6)
    if random.random() < 0.15:
        last = mangled(random, last)
    if random.random() < 0.1:
        last = last[: random.randrange(len(last))]
    if random.random() < 0.2:
        last += random.choice(JUNK)
    return content + last


def split(random: Random, content: bytes) -> tuple[bytes, ...]:
    """The content in segments: whole, cut in some places, or byte by byte."""
    kind = random.random()
    if kind < 0.3 or len(content) < 2:
        return (content,)
    if kind > 0.95:
        return tuple(content[at : at + 1] for at in range(len(content)))
    places = range(1, len(content))
    cuts = sorted(random.sample(places, min(random.randint(1, 4), len(places))))
    return tuple(content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True))


def cases(count: int, make: MakeDraft) -> Iterator[Case]:
    """`count` cases with different seeds."""
    for seed in range(count):
        random = Random(seed)
        yield Case(seed, split(random, stream(random, make)))


def cut_everywhere(content: bytes) -> Iterator[Case]:
    """The content in two segments, in every way; the seed is the place of the cut."""
    for cut in range(1, len(content)):
        yield Case(cut, (content[:cut], content[cut:]))
