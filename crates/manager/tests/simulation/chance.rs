//! Randomness that depends on the seed alone.

/// splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        // A different multiplier than in `next`, or each seed would equal the previous one, one step later.
        Self(seed.wrapping_add(1).wrapping_mul(0xD134_2543_DE82_EF95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Another generator, seeded by this one.
    pub(crate) fn another(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True with this probability in percent.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap();
        &all[index]
    }
}
