//! Where the plain part of a JSON string ends. Readers and writers of JSON spend much of their time on this question, so it is
//! answered for eight bytes at a time.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// How many bytes stand before the first quote, backslash or control character; all of them where there is none.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return index * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..b' '));
    words.len() * 8 + end.unwrap_or(rest.len())
}

/// The high bit of each byte that is a quote, a backslash or a control character. Bytes behind the first such byte may be marked in
/// error, because subtraction borrows; the first one never is.
fn special(word: u64) -> u64 {
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * u64::from(b' ')) & !word;
    (is_zero(word ^ (ONES * u64::from(b'"'))) | is_zero(word ^ (ONES * u64::from(b'\\'))) | control) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place() {
        for length in 0..20_usize {
            assert_eq!(plain_len(&vec![b'a'; length]), length);
            for at in 0..length {
                for byte in 0..=255_u8 {
                    for around in [b'a', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xff] {
                        let mut text = vec![around; length];
                        text[at] = byte;
                        let expected = if matches!(byte, b'"' | b'\\' | 0..b' ') { at } else { length };
                        assert_eq!(plain_len(&text), expected, "{byte:#x} at {at} of {length} in {around:#x}");
                    }
                }
            }
        }
    }
}
