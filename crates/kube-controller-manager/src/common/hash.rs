//! Short names for contents: the hash of a pod template in names and labels.

use serde::Serialize;

/// Letters and digits that form no words and are not mistaken for each other, as in all names Kubernetes makes up.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Of the content, and of how often another content had the same hash.
pub(crate) fn short_hash(content: &impl Serialize, collisions: Option<i32>) -> String {
    let text = serde_json::to_vec(content).unwrap_or_default();
    let mut hash = fnv(FNV_OFFSET, &text);
    if let Some(collisions) = collisions {
        hash = fnv(hash, &collisions.to_le_bytes());
    }
    // The number in decimal, each digit as a safe letter.
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

const FNV_OFFSET: u32 = 2_166_136_261;
const FNV_PRIME: u32 = 16_777_619;

fn fnv(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_tell_contents_and_collisions_apart() {
        let one = short_hash(&"a", None);
        assert_eq!(one, short_hash(&"a", None));
        assert_ne!(one, short_hash(&"b", None));
        assert_ne!(one, short_hash(&"a", Some(1)));
        assert!(one.bytes().all(|byte| ALPHABET.contains(&byte)), "{one}");
    }
}
