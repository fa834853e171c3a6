# SPDX-License-Identifier: Apache-2.0
"""A kernel of Python or bash: runs one piece of code after the other in one state, and says what comes of each.

The daemon sends this file and then messages over standard input, each behind its length in eight digits, and reads lines
of JSON from standard output: {"run": N, "type": …}. Code finds neither of the two: its input is /dev/null and its output
goes to pipes of ours. What is said here is a command's word, and the daemon believes none of it. Standard library only,
of Python 3.6 and later."""
import ast, base64, builtins, codecs, io, json, os, select, signal, subprocess, sys, threading, time, traceback, types

TELL = os.dup(1)  # where we are heard
HEAR = os.dup(0)  # where we are told
LARGEST = 6 << 20  # of a line: the daemon takes no larger one
PIECE = 1 << 15
lock = threading.Lock()
run = 0
busy = False


def tell(kind, **rest):
    line = json.dumps(dict({"run": run, "type": kind}, **rest), default=str, ensure_ascii=False)
    if len(line) > LARGEST:
        line = json.dumps({"run": run, "type": "stderr", "text": "[a result of %d bytes is too large to be shown]\n" % len(line)})
    data = (line + "\n").encode("utf-8", "replace")  # half a surrogate is no text
    with lock:
        while data:
            data = data[os.write(TELL, data):]


def hear_bytes(n):
    data = b""
    while len(data) < n:
        piece = os.read(HEAR, min(n - len(data), 1 << 20))
        if not piece:
            os._exit(0)
        data += piece
    return data


def hear():
    return json.loads(hear_bytes(int(hear_bytes(8))))


# --- what is printed ---


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


class Output:
    """Descriptors 1 and 2 are pipes; a thread passes on what comes, and drains them when it is asked to."""

    def __init__(self):
        self.ends, self.decoders, self.drained = {}, {}, threading.Event()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        for fd, name in ((1, "stdout"), (2, "stderr")):
            end, write = os.pipe()
            os.dup2(write, fd)
            os.close(write)
            os.set_blocking(end, False)
            self.ends[end] = name
            self.decoders[end] = codecs.getincrementaldecoder("utf-8")("replace")
        self.asked, self.ask = os.pipe()
        for fd in (self.asked, self.ask, TELL, HEAR):
            os.set_inheritable(fd, False)
        threading.Thread(target=self.loop, daemon=True).start()

    def pass_on(self, end):
        try:
            data = os.read(end, PIECE)
        except BlockingIOError:
            return False
        text = self.decoders[end].decode(data)
        if text:
            tell(self.ends[end], text=text)
        return bool(data)

    def loop(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        poll = select.poll()
        for fd in list(self.ends) + [self.asked]:
            poll.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(200 if busy else None)]
            if not ready:
                flush()  # what was printed without the end of a line
            for fd in ready:
                if fd != self.asked:
                    self.pass_on(fd)
            if self.asked in ready:
                os.read(self.asked, 1)
                for end in self.ends:
                    for _ in range(64):  # more than a pipe holds: who never stops printing is not waited for
                        if not self.pass_on(end):
                            break
                self.drained.set()

    def drain(self):
        """All that was printed by now has been told."""
        flush()
        self.drained.clear()
        os.write(self.ask, b".")
        self.drained.wait()


# --- what is shown ---

MIMES = {"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
         "application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart"}
METHODS = {"_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png", "_repr_jpeg_": "image/jpeg",
           "_repr_pdf_": "application/pdf", "_repr_latex_": "text/latex", "_repr_json_": "application/json", "_repr_javascript_": "application/javascript"}


def plain(value):
    """Like repr, wide structures over several lines as IPython has them."""
    text = repr(value)
    if len(text) > 79 and type(value) in (dict, list, tuple, set, frozenset):
        import pprint
        try:
            text = pprint.pformat(value, width=79)
        except Exception:
            pass
    return text


def frame_data(value):
    """Of a DataFrame: its columns as lists."""
    kind = type(value)
    if kind.__name__ != "DataFrame" or kind.__module__.split(".")[0] != "pandas":
        return None
    columns = {}
    for name, column in value.to_dict(orient="list").items():
        columns[str(name)] = [each.isoformat() if hasattr(each, "isoformat") else each.item() if hasattr(each, "item") else each for each in column]
    return json.loads(json.dumps(columns, default=str))


def bundle_of(value):
    """MIME types of what a value looks like."""
    bundle = {}
    whole = getattr(value, "_repr_mimebundle_", None)
    if callable(whole) and not isinstance(value, type):
        try:
            found = whole()
            bundle.update(found[0] if isinstance(found, tuple) else found or {})
        except Exception:
            pass
    for name, mime in METHODS.items():
        method = None if isinstance(value, type) or mime in bundle else getattr(value, name, None)
        if callable(method):
            try:
                found = method()
            except Exception:
                continue
            if isinstance(found, tuple):
                found = found[0]
            if found is not None:
                bundle[mime] = found
    if is_figure(value):
        bundle.update(figure_bundle(value))
    data = frame_data(value)
    if data is not None:
        bundle["e2b/data"] = data
    bundle.setdefault("text/plain", plain(value))
    return bundle


def show(bundle, main=False):
    output.drain()
    said, extra = {}, {}
    for mime, value in bundle.items():
        if isinstance(value, (bytes, bytearray)):
            value = base64.b64encode(value).decode("ascii")
        if mime in MIMES:
            said[MIMES[mime]] = value
        else:
            extra[mime] = value
    text = said.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        said["text"] = text[1:-1]
    if extra:
        said["extra"] = extra
    tell("result", is_main_result=main, **said)


def display(*values, **options):
    """Shows values: display(figure), display(frame), display({"text/html": "<b>x</b>"}, raw=True)."""
    for value in values:
        show(dict(value) if options.get("raw") else bundle_of(value))


class Shown:
    """What IPython.display has, for a Python without it."""

    mime = "text/plain"

    def __init__(self, data=None, url=None, filename=None, **options):
        if filename:
            with open(filename, "rb") as file:
                data = file.read()
        self.data, self.url, self.options = data, url, options

    def _repr_mimebundle_(self, *_, **__):
        return {self.mime: self.data, "text/plain": "<%s object>" % type(self).__name__}


def shown_class(name, mime):
    return type(name, (Shown,), {"mime": mime})


class Image(Shown):
    def _repr_mimebundle_(self, *_, **__):
        data, path = self.data, None
        if isinstance(data, str) and os.path.exists(data):
            path = data
        if path:
            with open(path, "rb") as file:
                data = file.read()
        data = data.encode() if isinstance(data, str) else data or b""
        mime = "image/jpeg" if data[:2] == b"\xff\xd8" else "image/png"
        return {mime: data, "text/plain": "<Image object>"}


def display_module():
    module = types.ModuleType("IPython.display")
    for name, mime in (("HTML", "text/html"), ("Markdown", "text/markdown"), ("SVG", "image/svg+xml"), ("Latex", "text/latex"), ("Math", "text/latex"),
                       ("JSON", "application/json"), ("Javascript", "application/javascript"), ("Pretty", "text/plain")):
        setattr(module, name, shown_class(name, mime))
    module.Image, module.display, module.DisplayObject = Image, display, Shown
    module.clear_output = lambda *_, **__: None
    module.display_html = lambda *values, **_: display(*values)
    module.display_png = module.display_svg = module.display_markdown = module.display_html
    return module


class Imports:
    """Where modules are looked for first: a stand-in for IPython where there is none, and figures that are shown inline."""

    looking = False

    def find_spec(self, name, path=None, target=None):
        if name not in ("carrel_inline_figures", "IPython", "IPython.display", "IPython.core.display_functions") or Imports.looking:
            return None
        import importlib.util
        if name == "carrel_inline_figures":
            return importlib.util.spec_from_loader(name, self)
        Imports.looking = True
        try:
            found = importlib.util.find_spec(name)
        except Exception:
            found = None
        finally:
            Imports.looking = False
        if found is None and name != "IPython.core.display_functions":
            return importlib.util.spec_from_loader(name, self, is_package=name == "IPython")
        if found is not None and name == "IPython.core.display_functions":
            real = found.loader.exec_module

            def exec_module(module):
                real(module)
                module.display = display
            found.loader.exec_module = exec_module
        return found

    def create_module(self, spec):
        if spec.name == "IPython.display":
            return display_module()
        module = types.ModuleType(spec.name)
        if spec.name == "IPython":
            module.get_ipython = get_ipython
            module.version_info = (8, 0, 0)
            module.__version__ = "8.0.0"
        return module

    def exec_module(self, module):
        if module.__name__ != "carrel_inline_figures":
            return
        from matplotlib.backends.backend_agg import FigureCanvasAgg, FigureManagerBase
        module.FigureCanvas, module.FigureManager = FigureCanvasAgg, FigureManagerBase
        module.show = lambda *_, **__: show_figures()


# --- figures ---


def is_figure(value):
    return "matplotlib.figure" in sys.modules and isinstance(value, sys.modules["matplotlib.figure"].Figure)


def figure_bundle(figure):
    bundle = {"text/plain": repr(figure)}
    if not figure.axes and not figure.lines and not figure.texts:
        return bundle
    image = io.BytesIO()
    figure.savefig(image, format="png", bbox_inches="tight")
    bundle["image/png"] = image.getvalue()
    try:
        chart = chart_of(figure)
    except Exception:
        chart = None
    if chart:
        bundle["e2b/chart"] = chart
    return bundle


def show_figures():
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        show(figure_bundle(pyplot.figure(number)))
    pyplot.close("all")


def number(value):
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, (int, float)) and value == value and abs(value) != float("inf") else None if isinstance(value, float) else str(value)


def unit_of(label):
    for opening, closing in ("()", "[]"):
        start, end = label.find(opening), label.rfind(closing)
        if 0 <= start < end:
            return label[start + 1:end]
    return None


def point(value, axis):
    """A coordinate: a time is a text, as the axis knows."""
    import matplotlib.dates
    if isinstance(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter, (matplotlib.dates.DateConverter, matplotlib.dates._SwitchableDateConverter)) \
            and isinstance(number(value), (int, float)):
        return matplotlib.dates.num2date(value).isoformat()
    return value.isoformat() if hasattr(value, "isoformat") else number(value)


def scale_of(axis):
    import matplotlib.category
    import matplotlib.dates
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    if isinstance(converter, (matplotlib.dates.DateConverter, matplotlib.dates._SwitchableDateConverter)):
        return "datetime"
    if isinstance(converter, matplotlib.category.StrCategoryConverter):
        return "categorical"
    return axis.get_scale()


def labels_of(axes):
    x, y = axes.get_xlabel(), axes.get_ylabel()
    return {"title": axes.get_title() or None, "x_label": x or None, "y_label": y or None, "x_unit": unit_of(x), "y_unit": unit_of(y)}


def ticks_of(axes):
    said = {}
    for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        said[letter + "_ticks"] = [point(tick, axis) for tick in axis.get_ticklocs()]
        said[letter + "_tick_labels"] = [label.get_text() for label in axis.get_ticklabels()]
        said[letter + "_scale"] = scale_of(axis)
    return said


def points_of(axes, label, pairs):
    return {"label": label, "points": [[point(x, axes.xaxis), point(y, axes.yaxis)] for x, y in pairs]}


def boxes_of(axes):
    """What boxplot drew: a box is a closed line of five points or more, or a patch, with whiskers and a median beside it."""
    from matplotlib.patches import PathPatch
    lines, boxes = [line for line in axes.get_lines()], []
    closed = [line.get_path().vertices for line in lines if len(line.get_xdata()) == 5 and list(line.get_xydata()[0]) == list(line.get_xydata()[-1])]
    closed += [patch.get_path().vertices for patch in axes.patches if isinstance(patch, PathPatch)]
    names = [label.get_text() for label in axes.get_xticklabels()]
    for at, corners in enumerate(closed):
        xs, ys = [corner[0] for corner in corners], [corner[1] for corner in corners]
        middle, low, high = (min(xs) + max(xs)) / 2, min(ys), max(ys)
        near = [line for line in lines if len(line.get_xdata()) and abs(sum(line.get_xdata()) / len(line.get_xdata()) - middle) < 1e-6]
        flat = [line for line in near if len(line.get_ydata()) == 2 and line.get_ydata()[0] == line.get_ydata()[1]]
        across = [line.get_ydata()[0] for line in flat if abs(max(line.get_xdata()) - min(line.get_xdata()) - (max(xs) - min(xs))) < 1e-6]
        ends = [y for line in near if len(line.get_ydata()) == 2 for y in line.get_ydata()] + [low, high]
        outliers = [number(y) for line in near if line.get_linestyle() in ("None", "none", "", " ") for y in line.get_ydata()]
        boxes.append({"label": names[at] if at < len(names) else str(at + 1), "min": number(min(ends)), "first_quartile": number(low),
                      "median": number(across[0] if across else (low + high) / 2), "third_quartile": number(high), "max": number(max(ends)), "outliers": outliers})
    return boxes


def chart_of_axes(axes):
    from matplotlib.container import BarContainer
    from matplotlib.patches import Wedge
    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    if wedges:
        return {"type": "pie", "title": axes.get_title() or None,
                "elements": [{"label": wedge.get_label(), "angle": number(abs(wedge.theta2 - wedge.theta1)), "radius": number(wedge.r)} for wedge in wedges]}
    bars = [container for container in axes.containers if isinstance(container, BarContainer)]
    if bars:
        upright = bars[0].orientation != "horizontal"
        names = [label.get_text() for label in (axes.get_xticklabels() if upright else axes.get_yticklabels())]
        elements = []
        for group in bars:
            label = group.get_label() or ""
            for at, patch in enumerate(group.patches):
                elements.append({"label": names[at] if at < len(names) else str(at), "group": label, "value": number(patch.get_height() if upright else patch.get_width())})
        return dict(labels_of(axes), type="bar", elements=elements)
    boxes = boxes_of(axes)
    if boxes:
        return dict(labels_of(axes), type="box_and_whisker", elements=boxes)
    if axes.collections and not axes.get_lines():
        return dict(labels_of(axes), type="scatter", elements=[points_of(axes, str(c.get_label()), c.get_offsets().tolist()) for c in axes.collections if hasattr(c, "get_offsets")], **ticks_of(axes))
    if axes.get_lines():
        return dict(labels_of(axes), type="line", elements=[points_of(axes, str(line.get_label()), zip(line.get_xdata(orig=False), line.get_ydata(orig=False))) for line in axes.get_lines()],
                    **ticks_of(axes))
    return {"type": "unknown", "title": axes.get_title() or None, "elements": []}


def chart_of(figure):
    charts = [chart_of_axes(axes) for axes in figure.axes]
    if len(charts) > 1:
        title = figure._suptitle.get_text() if figure._suptitle else None
        return {"type": "superchart", "title": title, "elements": charts}
    return charts[0] if charts else None


# --- Python ---


class Shell:
    """What code finds as get_ipython(): the part of it that people use."""

    def system(self, line):
        self.user_ns["_exit_code"] = subprocess.call(line, shell=True, executable="/bin/bash" if os.path.exists("/bin/bash") else None)

    def getoutput(self, line):
        return subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True).stdout.splitlines()

    def run_line_magic(self, name, rest):
        if name == "pip":
            self.system('"%s" -m pip %s' % (sys.executable, rest))
        elif name == "cd":
            os.chdir(os.path.expanduser(rest or "~"))
        elif name in ("env", "set_env") and "=" in rest:
            os.environ.update([rest.split("=", 1)])
        elif name == "time":
            began = time.time()
            run_python(rest, {"main": False})
            print("Wall time: %.3g s" % (time.time() - began))
        elif name not in ("matplotlib", "config", "load_ext", "autoreload"):
            raise NameError("there is no magic %%%s here" % name)

    def run_cell_magic(self, name, line, body):
        if name in ("bash", "sh"):
            subprocess.call([name, "-c", body])
        elif name in ("capture", "time"):
            run_python(body, {"main": name != "capture"})
        elif name == "writefile":
            with open(line.strip(), "w") as file:
                file.write(body)
        else:
            raise NameError("there is no magic %%%%%s here" % name)

    run_magic = run_line_magic
    magic = lambda self, line: self.run_line_magic(*(line.split(" ", 1) + [""])[:2])


def get_ipython():
    return shell


def without_magic(code):
    """!commands and %magic lines as calls."""
    if code.lstrip().startswith("%%"):
        first, _, body = code.lstrip().partition("\n")
        name, _, line = first[2:].partition(" ")
        return "get_ipython().run_cell_magic(%r, %r, %r)" % (name, line, body)
    lines = []
    for line in code.split("\n"):
        start = line.lstrip()
        indent = line[:len(line) - len(start)]
        if start.startswith("!"):
            line = indent + "get_ipython().system(%r)" % start[1:].strip()
        elif start.startswith("%"):
            name, _, rest = start[1:].partition(" ")
            line = indent + "get_ipython().run_line_magic(%r, %r)" % (name, rest.strip())
        elif " = !" in start:
            name, _, rest = start.partition(" = !")
            line = indent + "%s = get_ipython().getoutput(%r)" % (name, rest.strip())
        lines.append(line)
    return "\n".join(lines)


def parsed(code, name):
    try:
        return ast.parse(code, name)
    except SyntaxError:
        if "!" not in code and "%" not in code:
            raise
        other = without_magic(code)
        if other == code:
            raise
        return ast.parse(other, name)


AWAITS = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
loop = None


def evaluate(tree, name, mode):
    global loop
    compiled = compile(tree, name, mode, AWAITS, dont_inherit=True)
    value = eval(compiled, space)
    if compiled.co_flags & 0x80 and hasattr(value, "send"):  # a coroutine: it awaits something
        import asyncio
        loop = loop or asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        value = loop.run_until_complete(value)
    return value


def run_python(code, options):
    name = "<cell %d>" % count
    import linecache
    tree = parsed(code, name)
    linecache.cache[name] = (len(code), None, [line + "\n" for line in code.split("\n")], name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if tree.body:
        evaluate(tree, name, "exec")
    value = evaluate(ast.Expression(last.value), name, "eval") if last else None
    if value is not None and options.get("main", True) and not code.rstrip().endswith(";"):
        builtins._ = space["_"] = value
        if is_figure(value):
            sys.modules["matplotlib.pyplot"].close(value) if "matplotlib.pyplot" in sys.modules else None
        show(bundle_of(value), main=True)
    show_figures()


def tell_error(error):
    kind, value, trace = error
    while trace is not None and trace.tb_frame.f_code.co_filename == "<carrel>":
        trace = trace.tb_next  # ours
    output.drain()
    if kind is KeyboardInterrupt:
        last = trace
        while last is not None and last.tb_next is not None and last.tb_next.tb_frame.f_code.co_filename != "<carrel>":
            last = last.tb_next
        if last is not None:
            last.tb_next = None  # the handler is ours
    try:
        text = str(value)
    except Exception:
        text = ""
    if isinstance(value, SyntaxError) and (value.filename or "").startswith("<cell"):
        told = traceback.format_exception_only(kind, value)
    else:
        told = traceback.format_exception(kind, value, trace)
    tell("error", name=kind.__name__, value=text, traceback="".join(told))


# --- bash ---


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


class Bash:
    """A bash that reads what to do from a pipe, as at a prompt: so an interrupt ends the whole of what it does, and its state stays."""

    def __init__(self):
        self.child = None

    def say(self, text):
        self.child.stdin.write((text + "\n").encode("utf-8", "surrogateescape"))
        self.child.stdin.flush()

    def start(self):
        ours, theirs = os.pipe()
        errors = os.dup(2)
        self.child = subprocess.Popen(["bash", "--noprofile", "--norc", "--noediting", "-i"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                                      pass_fds=(theirs, errors), env=dict(os.environ, PS1="", PS2="", HISTFILE=""))
        os.close(theirs)
        os.close(errors)
        self.done, self.fd = os.fdopen(ours), theirs
        self.say("set +H +m; unset HISTFILE PS1 PS2; PS1=; PS2=; exec 2>&%d %d>&-\nprintf '0\\n' >&%d" % (errors, errors, theirs))
        self.done.readline()

    def run(self, code, env):
        if self.child is None or self.child.poll() is not None:
            self.start()
        env = {name: value for name, value in env.items() if name.isidentifier()}
        for name, value in env.items():
            self.say("__carrel_%s=${%s-} __carrel_has_%s=${%s+x}; export %s=%s" % (name, name, name, name, name, quoted(value)))
        self.say("eval %s </dev/null %d>&-\nprintf '%%d\\n' $? >&%d" % (quoted(code), self.fd, self.fd))
        status = self.answer()
        for name in env:
            self.say('if [ "$__carrel_has_%s" ]; then export %s="$__carrel_%s"; else unset %s; fi' % (name, name, name, name))
        return status

    def answer(self):
        try:
            line = self.done.readline()
        except KeyboardInterrupt:
            os.killpg(self.child.pid, signal.SIGINT)
            self.done.readline()
            raise
        if not line:
            status = self.child.wait()
            self.child = None
            raise EOFError("bash has ended with status %d; the next code begins in a new one" % status)
        return int(line)


def run_bash(code, options):
    status = bash.run(code, options.get("env") or {})
    if status:
        output.drain()
        tell("error", name="ExitStatus", value=str(status), traceback="the last command has ended with status %d\n" % status)


# --- one after the other ---


def interrupted(*_):
    if busy:
        raise KeyboardInterrupt


def run_one(message):
    global run, count, busy
    run, count = message["run"], count + 1
    env = {str(name): str(value) for name, value in (message.get("env") or {}).items()}
    before = {name: os.environ.get(name) for name in env}
    tell("number_of_executions", execution_count=count)
    try:
        busy = True
        os.write(output.ask, b".")  # it looks at `busy`
        os.environ.update(env)
        languages[language](message["code"], message)
    except SystemExit as error:
        if error.code not in (None, 0):
            tell_error(sys.exc_info())
    except BaseException:
        busy = False
        tell_error(sys.exc_info())
    finally:
        busy = False
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    output.drain()
    tell("end_of_execution")


def refuse(text):
    tell("failed", text=text)
    os._exit(1)


def begin():
    """What code finds around it."""
    global output
    if first.get("cwd"):
        try:
            os.chdir(first["cwd"])
        except OSError as failure:
            refuse("the directory '%s': %s" % (first["cwd"], failure.strerror))
    if language == "bash":
        import shutil
        if not shutil.which("bash"):
            refuse("there is no bash in this workspace")
    sys.modules["__main__"] = main
    sys.argv = [""]
    sys.path.insert(0, "")
    builtins.display, builtins.get_ipython = display, get_ipython
    if os.environ.get("MPLBACKEND", "Agg").lower() == "agg":  # what every command finds
        os.environ["MPLBACKEND"] = "module://carrel_inline_figures"
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.meta_path.insert(0, Imports())
    output = Output()
    sys.stdin = open(os.devnull)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="replace", line_buffering=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", errors="replace", line_buffering=True)
    signal.signal(signal.SIGINT, interrupted)


first = hear()
language = first["language"]
count = 0
shell = Shell()
bash = Bash()
languages = {"python": run_python, "bash": run_bash}
main = types.ModuleType("__main__")
shell.user_ns = space = main.__dict__
try:
    begin()
except Exception as failure:
    refuse("%s: %s" % (type(failure).__name__, failure))
tell("ready")
while True:
    run_one(hear())
