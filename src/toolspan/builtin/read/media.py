"""Files that are shown as what they are: images and PDF documents.

In: a question about a file that is there. Out: what is told of it, as blocks that a model looks at.
"""

import base64
from collections.abc import Mapping

from msgspec import structs

from toolspan.builtin.read.asked import Question
from toolspan.builtin.read.shown import Shown
from toolspan.disk.document import MOST_PAGES, Pages, extract, is_too_long
from toolspan.disk.load import Loaded, load
from toolspan.disk.picture import MEDIA_TYPES, Picture, picture
from toolspan.disk.scale import Fitted, fitted
from toolspan.disk.words import size_text
from toolspan.errors import ToolError
from toolspan.run.context import ToolContext
from toolspan.run.limits import file_name
from toolspan.run.tool import Output

MOST_DOCUMENT = 32 << 20


def show_image(question: Question) -> Shown:
    """An image, made smaller where it is too large for a model."""
    loaded = load(question.path, MOST_DOCUMENT)
    found = picture(loaded.data)
    if found is None and question.values.checks_images:
        raise ToolError(
            "File has an image extension but its content is not a valid PNG/JPEG/GIF/WebP."
            f" It begins with {loaded.data[:16]!r}.",
            kind="invalid_input",
        )
    if found is None:
        media_type = MEDIA_TYPES[question.path.suffix.lower()]
        output = _pictured(loaded.data, media_type, {"originalSize": len(loaded.data)})
    else:
        output = _fitted(question, loaded.data, found)
    return Shown(question, output, loaded.digest, loaded.stamp)


def _fitted(question: Question, data: bytes, found: Picture) -> Output:
    sent = fitted(data, found)
    output = _pictured(
        sent.data,
        sent.media_type,
        {
            "originalSize": len(data),
            "dimensions": _dimensions(found, sent, plain=question.values.plain_dimensions),
        },
    )
    if (sent.width, sent.height) == (found.width, found.height):
        return output
    note = (
        f"[Image: original {found.width}x{found.height}, displayed at {sent.width}x{sent.height}."
        f" Multiply coordinates by {found.width / sent.width:.2f} to map to original image.]"
    )
    if question.values.scale_note_inline and isinstance(output.content, list):
        return structs.replace(output, content=[{"type": "text", "text": note}, *output.content])
    return structs.replace(output, companions=(note,))


def _pictured(data: bytes, media_type: str, more: Mapping[str, object]) -> Output:
    text = base64.b64encode(data).decode("ascii")
    source = {"type": "base64", "data": text, "media_type": media_type}
    record = {"type": "image", "file": {"base64": text, "type": media_type, **more}}
    return Output([{"type": "image", "source": source}], record)


def _dimensions(found: Picture, sent: Fitted, *, plain: bool) -> dict[str, int]:
    if plain:
        return {"width": found.width, "height": found.height}
    return {
        "originalWidth": found.width,
        "originalHeight": found.height,
        "displayWidth": sent.width,
        "displayHeight": sent.height,
    }


def show_document(question: Question) -> Shown:
    """A whole PDF document."""
    loaded = _loaded_document(question)
    if count := is_too_long(loaded.data):
        raise ToolError(
            f"The document has {count} pages, too many to be read at once. Ask for some of them"
            f" with `pages`, {MOST_PAGES} at most.",
            kind="too_large",
        )
    size = len(loaded.data)
    block, data = _document_block(loaded.data)
    record = {
        "type": "pdf",
        "file": {"filePath": question.name, "base64": data, "originalSize": size},
    }
    text = f"PDF file read: {question.name} ({size_text(size)})"
    output = _beside(question, text, block, record)
    return Shown(question, output, loaded.digest, loaded.stamp)


def show_pages(question: Question, ctx: ToolContext) -> Shown:
    """Some pages: in the conversation as one document, on the disk as one each."""
    loaded = _loaded_document(question)
    pages = Pages.parse(question.pages or "")
    if pages is None:  # only without the check before the run
        raise ToolError(f"Invalid pages parameter: {question.pages!r}", kind="invalid_input")
    taken = extract(loaded.data, pages)
    folder = ctx.workspace.results_folder / f"pdf-{file_name(ctx.call.id)}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number, page in enumerate(taken.pages, pages.first):
        (folder / f"page-{number:03}.pdf").write_bytes(page)
    count, size = len(taken.pages), len(loaded.data)
    noun = "page" if count == 1 else "pages"
    text = f"PDF pages extracted: {count} {noun} from {question.name} ({size_text(size)})"
    record = {
        "type": "parts",
        "file": {
            "filePath": question.name,
            "originalSize": size,
            "count": count,
            "outputDir": str(folder),
        },
    }
    output = _beside(question, text, _document_block(taken.whole)[0], record)
    return Shown(question, output, loaded.digest, loaded.stamp)


def _loaded_document(question: Question) -> Loaded:
    loaded = load(question.path, MOST_DOCUMENT)
    if not loaded.data.startswith(b"%PDF-"):
        raise ToolError(
            f"{question.name} has the name of a PDF, but its content is none.",
            kind="invalid_input",
        )
    return loaded


def _document_block(document: bytes) -> tuple[dict[str, object], str]:
    data = base64.b64encode(document).decode("ascii")
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    return {"type": "document", "source": source}, data


def _beside(
    question: Question, text: str, block: dict[str, object], record: Mapping[str, object]
) -> Output:
    """A text and a document, in the result itself or beside it."""
    if question.values.document_inline:
        return Output([{"type": "text", "text": text}, block], record)
    return Output(text, record, companions=([block],))
