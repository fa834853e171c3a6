#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
# TAKES: 60
# AS: root
"""The template `office` as it is shipped, and what agents do with it, with the network closed: a plot, a Word document, a PDF,
a workbook, packages of one's own."""
import io
import json
import os
import re
import struct
import sys
import xml.etree.ElementTree
import zipfile
import zlib

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import write  # noqa: E402
from packagetest import PackagesTest, main  # noqa: E402

PLOT = """
import sys
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [float(word) for word in sys.argv[1:]])
plt.savefig('/plot.png')
"""
WORD = """
import { Document, Packer, Paragraph, TextRun } from "docx";
import { writeFileSync } from "fs";
const text: string = process.argv[2];
const doc = new Document({ sections: [{ children: [new Paragraph({ children: [new TextRun(text)] })] }] });
writeFileSync("/letter.docx", await Packer.toBuffer(doc));
console.log("saved");
"""
PDF = """
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas
page = canvas.Canvas('/report.pdf', pagesize=A4)
for n, line in enumerate(open('/lines.txt').read().splitlines()):
    page.drawString(72, 760 - 20 * n, line)
page.showPage()
page.drawString(72, 760, 'the second page')
page.save()
"""
READ_PDF = """
import pdfplumber, pypdf
print('\\n'.join(page.extract_text() for page in pypdf.PdfReader('/report.pdf').pages))
print('--')
with pdfplumber.open('/report.pdf') as pdf:
    print('\\n'.join(page.extract_text() for page in pdf.pages))
"""
WORKBOOK = """
import openpyxl, pandas
frame = pandas.DataFrame({'name': ['a', 'b', 'ü'], 'count': [1, 2, 3], 'share': [0.5, 0.25, 0.25]})
frame.to_excel('/table.xlsx', index=False, sheet_name='Sums')
book = openpyxl.load_workbook('/table.xlsx')
sheet = book['Sums']
sheet['B5'] = '=SUM(B2:B4)'
book.save('/table.xlsx')
again = openpyxl.load_workbook('/table.xlsx')['Sums']
assert [[cell.value for cell in row] for row in again['A1:C4']] == [list(frame.columns)] + frame.values.tolist()
assert again['B5'].value == '=SUM(B2:B4)'
back = pandas.read_excel('/table.xlsx', nrows=3)
assert back.equals(frame.astype(back.dtypes.to_dict())), back
print(back['count'].sum())
"""
# Each is imported by what it is installed as.
MODULES = ("pandas numpy openpyxl xlrd pypdf pdfplumber reportlab pdf2image PIL pytesseract matplotlib seaborn defusedxml bs4 lxml "
           "requests httpx dateutil pytz").split()
OLDER = "2023.3"  # of pytz
LINES = ["Invoice 4711", "Three boxes of paper (A4)", "Total: 12.50 EUR"]


def chunks(data):
    """(kind, content) of each part of a PNG, their checksums seen to be right."""
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(kind + content), kind
        yield kind, content
        at += 12 + size


def paeth(left, up, corner):
    near = left + up - corner
    return min((left, up, corner), key=lambda value: abs(near - value))


def unfilter(kind, line, above, width):
    """Undoes what PNG does to a line before it is packed; `width` is the bytes of a pixel."""
    for i, value in enumerate(line):
        left = line[i - width] if i >= width else 0
        corner = above[i - width] if i >= width else 0
        line[i] = (value + (0, left, above[i], (left + above[i]) // 2, paeth(left, above[i], corner))[kind]) & 255
    return line


def decode(data):
    """(width, height, set of colours, bytes of all pixels) of a PNG with 8 bits a channel."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", data[:8]
    parts = list(chunks(data))
    assert parts[0][0] == b"IHDR" and parts[-1][0] == b"IEND", [kind for kind, _ in parts]
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert (depth, interlaced) == (8, 0) and colour in (2, 6), parts[0][1]
    each = {2: 3, 6: 4}[colour]
    packed = io.BytesIO(zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT")))
    above, pixels = bytearray(width * each), bytearray()
    for _ in range(height):
        kind = packed.read(1)[0]
        above = unfilter(kind, bytearray(packed.read(width * each)), above, each)
        pixels += above
    assert packed.read() == b""
    return width, height, {bytes(pixels[i : i + each]) for i in range(0, len(pixels), each)}, bytes(pixels)


class Office(PackagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.built = cls.carrel("template", "build", "office")
        more = write(os.path.join(cls.dir, "more.json"), json.dumps({"name": "more", "python": {"packages": [f"pytz=={OLDER}", "tabulate"]}}))
        cls.carrel("template", "build", more)  # which brings these into the shared cache
        cls.workspace("desk", template="office")

    def test_it_has_all_that_it_promises(self):
        shown = self.carrel("template", "show", "office")
        self.assertRegex(shown, r"docx@\d")
        self.assertEqual("", self.inside("desk", "python - <<'END'\n" + "\n".join(f"import {name}" for name in MODULES) + "\nEND"))
        self.assertRegex(shown, r"pandas==\d")

    def test_a_plot_shows_its_data(self):
        self.put("desk", "/plot.py", PLOT)
        pictures = []
        for data in ("4 5 6", "6 1 5", "4 5 6"):
            self.inside("desk", f"rm -f /plot.png; python /plot.py {data}")
            pictures.append(decode(self.fetch("desk", "/plot.png")))
        for width, height, colours, pixels in pictures:
            self.assertEqual((640, 480), (width, height))
            self.assertGreater(len(colours), 10, "an empty picture")
        self.assertNotEqual(pictures[0][3], pictures[1][3])
        self.assertEqual(pictures[0][3], pictures[2][3])

    def test_a_word_document_opens(self):
        self.put("desk", "/letter.ts", WORD)
        self.assertEqual("saved\n", self.inside("desk", "bun run /letter.ts 'Dear Sir, <&> ümlaut'"))
        with zipfile.ZipFile(io.BytesIO(self.fetch("desk", "/letter.docx"))) as archive:
            self.assertIsNone(archive.testzip())
            self.assertLessEqual({"[Content_Types].xml", "_rels/.rels", "word/document.xml"}, set(archive.namelist()))
            for name in archive.namelist():
                if name.endswith((".xml", ".rels")):
                    xml.etree.ElementTree.fromstring(archive.read(name))
            body = xml.etree.ElementTree.fromstring(archive.read("word/document.xml"))
        self.assertEqual("Dear Sir, <&> ümlaut", "".join(body.itertext()))

    def test_a_pdf_is_read_back(self):
        self.put("desk", "/lines.txt", "\n".join(LINES))
        self.put("desk", "/pdf.py", PDF)
        self.inside("desk", "python /pdf.py")
        self.assertTrue(self.fetch("desk", "/report.pdf").startswith(b"%PDF-1."))
        self.put("desk", "/read.py", READ_PDF)
        texts = self.inside("desk", "python /read.py").split("--\n")
        for text in texts:
            self.assertEqual([*LINES, "the second page"], [line.strip() for line in text.split("\n") if line.strip()])

    def test_a_workbook_is_written_and_read(self):
        self.put("desk", "/book.py", WORKBOOK)
        self.assertEqual("6\n", self.inside("desk", "python /book.py"))
        with zipfile.ZipFile(io.BytesIO(self.fetch("desk", "/table.xlsx"))) as archive:
            self.assertIsNone(archive.testzip())
            self.assertIn("xl/worksheets/sheet1.xml", archive.namelist())

    def test_packages_of_its_own_are_added_upgraded_and_removed(self):
        """The cache has what the build has put there; the network is closed."""
        self.workspace("own", template="office")
        version = "python -c 'import pytz; print(pytz.__version__)'"
        cached = self.inside("own", version).strip()
        self.inside("own", f"uv pip install pytz=={OLDER}")
        self.assertEqual(f"{OLDER}\n", self.inside("own", version))
        self.inside("own", "uv pip install --upgrade pytz")
        self.assertEqual(cached, self.inside("own", version).strip())
        self.inside("own", "uv pip install tabulate && python -c 'import tabulate'")
        self.inside("own", "uv pip uninstall seaborn")
        self.assertIn("No module named 'seaborn'", self.fails("own", "python -c 'import seaborn'"))
        self.inside("own", "uv pip install seaborn && python -c 'import seaborn'")
        docx = self.inside("own", "bun -p 'require(\"/node_modules/docx/package.json\").version'").strip()
        self.inside("own", "bun remove docx")
        self.fails("own", "bun -e 'require(\"docx\")'")
        self.inside("own", f"bun add --offline docx@{docx}")
        self.inside("own", "bun -e 'require(\"docx\")'")
        # In a workspace that stands on nothing, some of them.
        self.workspace("plain", python=True)
        self.inside("plain", "uv pip install openpyxl && python -c 'import openpyxl'")
        # And those beside it have all as it was.
        self.assertEqual(cached, self.inside("desk", version).strip())
        self.inside("desk", "python -c 'import seaborn'; bun -e 'require(\"docx\")'")
        self.assertRegex(self.carrel("template", "list"), r"(?m)^office\b")

    def test_the_build_tells_how_it_goes_and_ends(self):
        self.assertTrue(re.search(r"office: [\d,]+ files", self.built), self.built)


if __name__ == "__main__":
    main()
