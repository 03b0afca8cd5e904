import { describe, expect, it } from 'vitest';
import { cell, LINE_MAX, logLine, reveal, t } from '../src/lib/text';

describe('text of others', () => {
  it('names control characters', () => expect(reveal('a\u0000b\u001b[2Jc\u007f')).toBe('a⟨NUL⟩b⟨ESC⟩[2Jc⟨DEL⟩'));
  it('names direction marks', () => expect(reveal('a\u202egnp.exe\u202c')).toBe('a⟨RLO⟩gnp.exe⟨PDF⟩'));
  it('keeps markup as it is', () => expect(t('<img src=x onerror=alert(1)>')).toBe('<img src=x onerror=alert(1)>'));
  it('keeps other scripts', () => expect(t('שלום 世界 🚢')).toBe('שלום 世界 🚢'));
  it('bounds what is long', () => expect(t('x'.repeat(5000)).length).toBeLessThan(4100));
  it('does not cut a pair in two', () => expect(t('🚢🚢', 3)).toBe('🚢… (+2 characters)'));
  it('puts cells on one line', () => expect(cell('a\nb\tc')).toBe('a b c'));
  it('says nothing for nothing', () => expect([t(null), t(undefined), t(0), t(false)]).toEqual(['', '', '0', 'false']));
});

describe('log lines', () => {
  it('lose colours only', () => expect(logLine('\u001b[1;31mred\u001b[0m \u001b]0;title\u0007')).toBe('red ⟨ESC⟩]0;title⟨BEL⟩'));
  it('are bounded', () => expect(logLine('y'.repeat(1 << 20)).length).toBeLessThan(LINE_MAX + 100));
});
