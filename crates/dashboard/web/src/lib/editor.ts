// CodeMirror as the page uses it: YAML, completion from the schema, problems at their lines.

import { autocompletion, closeBrackets, completionKeymap, type CompletionContext } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { setDiagnostics } from '@codemirror/lint';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { changes } from './diff';
import { nonce } from './nonce';
import { pathAt, type Schema } from './schema';

const look = EditorView.theme({
  '&': { height: '100%', backgroundColor: 'var(--surface)', color: 'var(--text)', fontSize: '12.5px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.6' },
  '.cm-gutters': { backgroundColor: 'var(--sunk)', color: 'var(--muted)', border: 'none', borderRight: '1px solid var(--line)' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--accent) 7%, transparent)' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused': { outline: 'none' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'color-mix(in srgb, var(--accent) 24%, transparent)' },
  '.cm-tooltip': { backgroundColor: 'var(--surface)', color: 'var(--text)', border: '1px solid var(--line-2)', borderRadius: '6px' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--accent-ink)' },
  '.cm-completionInfo': { maxWidth: '380px', maxHeight: '220px', overflow: 'auto', fontFamily: 'var(--sans)' },
  '.cm-panels': { backgroundColor: 'var(--sunk)', color: 'var(--text)' },
  '.cm-specialChar': { color: 'var(--failing)' },
  '.cm-foldPlaceholder': { backgroundColor: 'var(--unknown-soft)', color: 'var(--muted)', border: 'none' },
});
const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--accent)' },
  { tag: [tags.string, tags.content], color: 'var(--text)' },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: 'var(--progressing)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: 'var(--muted)' },
]);

function complete(schema: () => Schema | null) {
  return (context: CompletionContext) => {
    const known = schema();
    const line = context.state.doc.lineAt(context.pos);
    const before = line.text.slice(0, context.pos - line.from);
    const match = /^(\s*(?:- +)*)([A-Za-z0-9_]*)$/.exec(before);
    if (!known || !match || (!context.explicit && !match[2])) return null;
    const lines = context.state.doc.sliceString(0, line.to).split('\n');
    const options = known.fields(pathAt(lines, line.number - 1, match[1].length)).map((field) => ({
      label: field.name, type: 'property', detail: field.type + (field.required ? ', required' : ''), info: field.description || undefined, boost: field.required ? 1 : 0,
      apply: field.type === 'object' || field.type === 'list' ? `${field.name}:\n${' '.repeat(match[1].length + (field.type === 'object' ? 2 : 0))}${field.type === 'list' ? '- ' : ''}` : `${field.name}: `,
    }));
    return options.length ? { from: context.pos - match[2].length, options, validFor: /^\w*$/ } : null;
  };
}

export class Editor {
  readonly view: EditorView;
  private readonly only = new Compartment();

  constructor(parent: HTMLElement, text: string, changed: (text: string) => void, save: () => void, schema: () => Schema | null, label: string) {
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        doc: text,
        extensions: [
          EditorView.cspNonce.of(nonce), lineNumbers(), foldGutter(), highlightSpecialChars(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(),
          highlightActiveLine(), highlightSelectionMatches(), search({ top: true }), yaml(), indentUnit.of('  '), syntaxHighlighting(colours), look,
          autocompletion({ override: [complete(schema)], icons: false }), EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
          keymap.of([{ key: 'Mod-s', run: () => { save(); return true; } }, ...completionKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, indentWithTab]),
          EditorView.updateListener.of((update) => { if (update.docChanged) changed(update.state.doc.toString()); }),
          this.only.of([]),
        ],
      }),
    });
  }

  /** Only what is another is written: who has put the cursor somewhere finds it there. */
  set(text: string) {
    const found = changes(this.view.state.doc.toString(), text);
    if (found.length) this.view.dispatch({ changes: found });
  }
  readOnly(on: boolean) { this.view.dispatch({ effects: this.only.reconfigure(on ? [EditorState.readOnly.of(true)] : []) }); }
  mark(problems: { line: number; message: string }[]) {
    const lines = this.view.state.doc.lines;
    this.view.dispatch(setDiagnostics(this.view.state, problems.map((one) => {
      const line = this.view.state.doc.line(Math.max(1, Math.min(lines, one.line + 1)));
      return { from: line.from, to: line.to, severity: 'error' as const, message: one.message, renderMessage: () => document.createTextNode(one.message) };
    })));
  }
  destroy() { this.view.destroy(); }
}

/** The line of a field such as `spec.containers[0].image` in YAML text, as far as its keys are found in order. */
export function lineOf(text: string, field: string): number {
  const lines = text.split('\n');
  let at = 0, found = 0;
  for (const step of field.split('.')) {
    const name = step.replace(/\[.*$/, '');
    const index = lines.findIndex((line, row) => row >= at && new RegExp(`^\\s*(?:- +)*["']?${name.replace(/[^\w-]/g, '.')}["']?:`).test(line));
    if (index < 0) break;
    found = index;
    at = index + 1;
  }
  return found;
}
