//! Pseudo-random numbers from the seed, so that a run can be repeated.

/// `SplitMix64`: small, and good enough for ids and names.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// MAAS leaves out letters and digits that are easily confused.
const SYSTEM_ID_ALPHABET: &[u8] = b"34678abcdefghkmnpqrstwxy";

const ADJECTIVES: &[&str] = &[
    "able", "bold", "brave", "bright", "calm", "clear", "cool", "crisp", "deep", "epic", "fair", "fast", "fresh",
    "game", "glad", "grand", "hip", "holy", "joint", "keen", "known", "large", "loyal", "mint", "moral", "neat",
    "nice", "open", "prime", "proud", "quick", "rare", "real", "sharp", "smart", "solid", "sweet", "top", "up", "vast",
    "vital", "wise",
];
const NOUNS: &[&str] = &[
    "adder", "ant", "baboon", "bat", "bear", "bird", "bison", "boar", "calf", "cat", "cobra", "cod", "crab", "crow",
    "dane", "deer", "dingo", "dove", "eagle", "eel", "elk", "finch", "flea", "fox", "frog", "grub", "guppy", "hare",
    "hawk", "hen", "hippo", "ibex", "jay", "kid", "lark", "lynx", "mole", "moth", "newt", "owl", "pug", "shad",
    "shrew", "skunk", "slug", "snail", "stag", "swan", "tetra", "tiger", "toad", "vole", "wasp", "whale", "wolf",
    "worm", "yak",
];

impl Rng {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            return 0;
        }
        usize::try_from(self.next_u64() % (bound as u64)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let index = self.below(of.len());
        of.get(index)
    }

    /// Six characters, as in MAAS's system ids.
    pub fn system_id(&mut self) -> String {
        (0..6).filter_map(|_| self.pick(SYSTEM_ID_ALPHABET)).map(|byte| char::from(*byte)).collect()
    }

    /// A host name of two words, as MAAS generates them.
    pub fn pet_name(&mut self) -> String {
        let adjective = self.pick(ADJECTIVES).copied().unwrap_or("able");
        let noun = self.pick(NOUNS).copied().unwrap_or("ant");
        format!("{adjective}-{noun}")
    }

    /// A MAC address with the given three-byte prefix.
    pub fn mac(&mut self, prefix: &str) -> String {
        let [a, b, c, ..] = self.next_u64().to_be_bytes();
        format!("{prefix}:{a:02x}:{b:02x}:{c:02x}")
    }

    /// `count` hexadecimal digits.
    pub fn hex(&mut self, count: usize) -> String {
        let words: Vec<String> = (0..count.div_ceil(16)).map(|_| format!("{:016x}", self.next_u64())).collect();
        let mut text = words.concat();
        text.truncate(count);
        text
    }
}

fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number derived from a seed and words: always the same, whatever happened before.
pub fn decide(seed: u64, words: &[&str]) -> u64 {
    let mut hash = mix(seed ^ 0xCBF2_9CE4_8422_2325);
    for word in words {
        for byte in word.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        hash = mix(hash);
    }
    hash
}

/// A version-4 UUID derived from words, for ids that are random in MAAS and need not be stored.
pub fn uuid_from(seed: u64, words: &[&str]) -> String {
    let high = decide(seed, words);
    let low = mix(high);
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFF,
        0x8000 | ((low >> 48) & 0x3FFF),
        low & 0xFFFF_FFFF_FFFF
    )
}
