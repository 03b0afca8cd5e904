//! Shuffle sharding: a flow is dealt a hand of queues, so that two flows rarely share all of theirs. Pure.

/// The largest hand that can be asked for; validation keeps `handSize` within it.
pub(crate) const HAND_MAX: usize = 16;

/// The queues of a flow: `size` different numbers below `deck`, always the same for the same hash.
pub fn deal(hash: u64, deck: usize, size: usize) -> ([usize; HAND_MAX], usize) {
    let size = size.clamp(1, HAND_MAX).min(deck.max(1));
    let mut hand = [0; HAND_MAX];
    let mut rest = hash;
    for (index, card) in hand.iter_mut().enumerate().take(size) {
        let left = (deck.max(1) - index) as u64;
        *card = (rest % left) as usize;
        rest /= left;
    }
    // Each number counts among the cards that are left; here it becomes one of the whole deck.
    let drawn = hand;
    for (index, card) in hand.iter_mut().enumerate().take(size) {
        for earlier in drawn[..index].iter().rev() {
            if *card >= *earlier {
                *card += 1;
            }
        }
    }
    (hand, size)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_hand_has_different_queues_of_the_deck() {
        for (deck, size) in [(1, 1), (8, 8), (64, 6), (128, 6), (5, 8), (512, 16)] {
            for seed in 0..500u64 {
                let hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let (hand, dealt) = deal(hash, deck, size);
                let different: BTreeSet<usize> = hand[..dealt].iter().copied().collect();
                assert_eq!(different.len(), size.min(deck), "{deck} {size} {hash}");
                assert!(different.iter().all(|queue| *queue < deck), "{deck} {size} {hash}");
            }
        }
    }

    #[test]
    fn hands_are_stable_and_spread() {
        assert_eq!(deal(12345, 64, 6), deal(12345, 64, 6));
        // 12345 = 57 + 64 * 192; 192 = 3 + 63 * 3; 3 = 3 + 62 * 0; and 3 is taken twice by then.
        assert_eq!(&deal(12345, 64, 3).0[..3], &[57, 3, 4]);
        let mut used = [0; 64];
        for seed in 0..6400u64 {
            let (hand, size) = deal(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 64, 6);
            hand[..size].iter().for_each(|queue| used[*queue] += 1);
        }
        assert!(used.iter().all(|count| (400..800).contains(count)), "{used:?}");
    }
}
