// SPDX-License-Identifier: Apache-2.0
// A kernel of JavaScript and TypeScript, on Node's own REPL: as kernel.py, which says how the daemon talks to it. `read` reads
// so many bytes of standard input. TypeScript loses its types by Node itself, or by the workspace's typescript or esbuild.
'use strict';
// The REPL's domains would follow every call, and Node counts those for them: code that is broken off (below) leaves that count wrong,
// which would end Node. Errors that nobody catches are heard without them.
const hooks = require('async_hooks'), { createHook } = hooks, none = { enable: () => none, disable: () => none };
hooks.createHook = () => none;
require('domain');
hooks.createHook = createHook;
const fs = require('fs'), path = require('path'), repl = require('repl'), util = require('util'), module_ = require('module');
const { PassThrough, Writable } = require('stream');
const { Worker } = require('worker_threads');

const LARGEST = 6 << 20;
const MIMES = { 'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png', 'image/jpeg': 'jpeg',
  'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json', 'application/javascript': 'javascript' };
let run = 0, count = 0;

function writeAll(data) {
  for (let at = 0; at < data.length;) {
    try {
      at += fs.writeSync(1, data, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

function tell(type, rest = {}) {
  let line = JSON.stringify({ run, type, ...rest });
  if (line.length > LARGEST) line = JSON.stringify({ run, type: 'stderr', text: `[a result of ${line.length} bytes is too large to be shown]\n` });
  // Half a surrogate is no text.
  writeAll(Buffer.from(line.replace(/\\(u[dD][89a-fA-F][0-9a-fA-F]{2}|.)/g, (whole, next) => (next.length > 1 ? '\\ufffd' : whole)) + '\n'));
}

// What the script itself prints; what its children print they print to pipes, as spawn makes them.
function output(name) {
  const stream = new Writable({ decodeStrings: false, write(chunk, encoding, done) {
    const text = typeof chunk === 'string' ? chunk : chunk.toString('utf8');
    if (text) tell(name, { text });
    done();
  } });
  Object.defineProperty(process, name, { value: stream, configurable: true });
  return stream;
}

function hear() {
  return JSON.parse(read(+read(8)).toString());
}

const first = hear();
const refuse = (text) => { tell('failed', { text }); process.exit(1); };
if (first.cwd) {
  try {
    process.chdir(first.cwd);
  } catch (error) {
    refuse(`the directory '${first.cwd}': ${error.code}`);
  }
}
const workspace = module_.createRequire(path.join(process.cwd(), 'x.js'));

// --- TypeScript ---

function findStrip() {
  if (module_.stripTypeScriptTypes) {
    const silent = process.emitWarning;
    return (code) => {
      process.emitWarning = () => {};
      try {
        return module_.stripTypeScriptTypes(code, { mode: 'transform' });
      } finally {
        process.emitWarning = silent;
      }
    };
  }
  const places = [workspace.resolve.paths('x') || [], module_.globalPaths || [], [path.join(path.dirname(process.execPath), '../lib/node_modules'), '/usr/local/lib/node_modules', '/usr/lib/node_modules', '/usr/share/nodejs']].flat();
  for (const [name, use] of [['typescript', (ts) => (code) => {
    const made = ts.transpileModule(code, { reportDiagnostics: true, compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: false } });
    const wrong = (made.diagnostics || [])[0];
    if (wrong) throw new SyntaxError(ts.flattenDiagnosticMessageText(wrong.messageText, '\n'));
    return made.outputText;
  }], ['esbuild', (es) => (code) => es.transformSync(code, { loader: 'ts', target: 'es2022' }).code]]) {
    try {
      return use(workspace(require.resolve(name, { paths: places })));
    } catch (error) { /* the next */ }
  }
  return null;
}

const strip = first.language === 'typescript' ? findStrip() : (code) => code;
if (!strip) refuse(`Node ${process.version} reads no TypeScript: take Node 22.13 or later, or install 'typescript' or 'esbuild' in the workspace`);

// import a, { b as c } from 'm' as what can stand in a script.
function withoutImports(code) {
  return code.replace(/(^[ \t]*|;[ \t]*)import\s+(?:([\w$*{},\s]+?)\s+from\s+)?(['"][^'"\n]+['"])/gm, (whole, indent, names, from) => {
    if (!names) return `${indent}await import(${from})`;
    const parts = [];
    let rest = names.trim();
    const braces = rest.match(/\{([^}]*)\}/);
    if (braces) {
      const list = braces[1].split(',').map((n) => n.trim()).filter((n) => n && !n.startsWith('type ')).map((n) => n.replace(/\s+as\s+/, ': '));
      if (list.length) parts.push(`{ ${list.join(', ')} }`);
      rest = rest.replace(braces[0], '').replace(/,\s*$/, '').trim();
    }
    const all = rest.match(/\*\s+as\s+([\w$]+)/);
    if (all) return `${indent}var ${all[1]} = await import(${from})`;
    if (rest) parts.push(`{ default: ${rest.replace(/,/g, '').trim()} }`);
    return parts.map((part) => `${indent}var ${part} = await import(${from})`).join('; ');
  });
}

// --- one after the other ---

const server = repl.start({ prompt: '', input: new PassThrough(), output: new PassThrough(), terminal: false, useGlobal: true, ignoreUndefined: true });
server.removeAllListeners('SIGINT');
process.removeAllListeners('uncaughtException');
output('stdout');
output('stderr');
globalThis.console = new console.Console(process.stdout, process.stderr);
globalThis.require = workspace;
process.on('SIGINT', () => wrong(interrupted())); // until the watch below hears it
let wrong = () => {}; // what the run under way is told of an error that its code did not catch
if (server._domain) {
  server._domain.removeAllListeners('error');
  server._domain.on('error', (error) => wrong(error));
}

function show(bundle, main) {
  const said = {}, extra = {};
  for (const [mime, value] of Object.entries(bundle)) {
    const text = Buffer.isBuffer(value) || value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;
    if (MIMES[mime]) said[MIMES[mime]] = text;
    else extra[mime] = text;
  }
  if (Object.keys(extra).length) said.extra = extra;
  tell('result', { is_main_result: main, ...said });
}

async function bundleOf(value) {
  const own = value !== null && typeof value === 'object' ? value[Symbol.for('Jupyter.display')] : undefined;
  if (typeof own === 'function') return own.call(value);
  return { 'text/plain': typeof value === 'string' ? value : util.inspect(value) };
}

globalThis.display = async (value, options) => show(options && options.raw ? value : await bundleOf(value), false);

// From the event loop, so that code which is broken off takes nothing with it that waits for it.
function evaluate(code) {
  return new Promise((resolve, reject) => {
    wrong = reject;
    setImmediate(() => server.eval(code, server.context, `cell ${count}`, (error, value) => {
      if (error instanceof repl.Recoverable) error = error.err;
      if (error) reject(error);
      else resolve(value);
    }));
  });
}

// --- interrupts ---

// Code that loops hears nothing, in whatever it loops: a cell, a callback, what follows an await. So a thread waits for the signal (as
// vm lets it: breakOnSigint), and tells the main one. Where that does not hear it, its children are interrupted, and what it does
// is broken off as a debugger would. All that was defined stays, which is why this is not a new process.
const watch = `
const { parentPort, workerData: heard } = require('worker_threads'), vm = require('vm'), fs = require('fs');
const { Session } = require('inspector');
function children() {
  try { return fs.readFileSync('/proc/self/task/' + process.pid + '/children', 'utf8').split(' ').filter(Boolean); } catch (error) { return []; }
}
const isDeaf = () => Atomics.wait(heard, 0, 0, 100) === 'timed-out';
// A session only now: Node would not end while there is one.
function breakOff() {
  const session = new Session();
  session.connectToMainThread();
  session.post('Runtime.terminateExecution');
  Atomics.wait(heard, 0, 0, 1000);
  session.disconnect();
}
function interrupt() {
  if (!isDeaf()) return;
  const all = children();
  for (const pid of all) try { process.kill(+pid, 'SIGINT'); } catch (error) { /* it has gone */ }
  if (!all.length || isDeaf()) breakOff();
}
const never = new Int32Array(new SharedArrayBuffer(4));
globalThis.sleep = () => Atomics.wait(never, 0, 0);
const signal = new vm.Script('sleep()');
globalThis.loop = () => {
  for (;;) {
    try { signal.runInThisContext({ breakOnSigint: true }); } catch (error) { /* here it is */ }
    Atomics.store(heard, 0, 0);
    parentPort.postMessage('interrupt');
    interrupt();
  }
};
const all = new vm.Script('loop()'); // a signal between two waits finds this one
parentPort.postMessage('ready');
for (;;) try { all.runInThisContext({ breakOnSigint: true }); } catch (error) { /* the next one is heard */ }`;

function interrupted() {
  return Object.assign(new Error('the code was interrupted'), { name: 'Interrupted', stack: 'Interrupted: the code was interrupted' });
}

function startWatch() {
  const heard = new Int32Array(new SharedArrayBuffer(4));
  const thread = new Worker(watch, { eval: true, workerData: heard, env: {}, execArgv: [] });
  thread.on('error', () => {}); // a Node without its inspector: then the daemon ends what goes on
  thread.on('message', (what) => {
    if (what !== 'interrupt') return;
    Atomics.store(heard, 0, 1);
    Atomics.notify(heard, 0);
    wrong(interrupted());
  });
  thread.unref();
}

function tellError(error) {
  const known = error instanceof Error || (error && typeof error === 'object' && 'message' in error);
  const stack = known && error.stack ? String(error.stack).split('\n').filter((line) => !/node:|\(?<anonymous>|REPLServer|\[eval\]/.test(line)).join('\n') : util.inspect(error);
  tell('error', { name: known ? String(error.name || 'Error') : 'Error', value: known ? String(error.message) : util.inspect(error), traceback: stack });
}

async function runOne(message) {
  run = message.run;
  count += 1;
  const before = {};
  tell('number_of_executions', { execution_count: count });
  for (const [name, value] of Object.entries(message.env || {})) {
    before[name] = process.env[name];
    process.env[name] = value;
  }
  try {
    const value = await evaluate(withoutImports(strip(message.code)) + '\n');
    if (value !== undefined) show(await bundleOf(value), true);
  } catch (error) {
    tellError(error);
  }
  wrong = noted;
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  tell('end_of_execution');
}

// Thrown in a callback between two runs: nobody is there to hear it.
function noted() {}

// Bytes as they come, so that timers and promises go on between two runs.
let got = Buffer.alloc(0), waiting = null;
function more() {
  const piece = Buffer.alloc(1 << 20);
  fs.read(0, piece, 0, piece.length, null, (error, n) => {
    if (error && (error.code === 'EAGAIN' || error.code === 'EINTR')) return setTimeout(more, 5);
    if (error || !n) process.exit(0);
    got = Buffer.concat([got, piece.subarray(0, n)]);
    waiting();
  });
}

async function take(n) {
  while (got.length < n) await new Promise((resolve) => { waiting = resolve; more(); });
  const bytes = got.subarray(0, n);
  got = got.subarray(n);
  return bytes;
}

(async () => {
  setInterval(() => {}, 1 << 30); // code may wait for what never comes
  wrong = noted;
  process.on('uncaughtException', (error) => wrong(error));
  startWatch();
  tell('ready');
  for (;;) await runOne(JSON.parse((await take(+await take(8))).toString()));
})();
