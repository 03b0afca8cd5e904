//! Numbers that look random and come again with the same seed (splitmix64).

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Each target draws its own numbers from one seed.
    pub fn new(seed: u64, name: &str) -> Random {
        let mixed = name
            .bytes()
            .fold(seed, |state, byte| state.rotate_left(5) ^ u64::from(byte).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Random(mixed)
    }

    /// One that goes on by itself.
    pub fn fork(&mut self) -> Random {
        Random(self.next())
    }

    #[allow(clippy::should_implement_trait)] // It never ends.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
