//! Seeded choices: a failing test prints its seed, and the seed replays the choices.

/// The environment variable that replays a seed.
const VARIABLE: &str = "HOLDFAST_SEED";

/// The seed of this run: from the environment, else random. It is printed; test runners show it when the test fails.
///
/// # Panics
/// When the variable is no number.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().expect("a seed is a number"),
        Err(_) => {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes).expect("random bytes");
            u64::from(u32::from_le_bytes(bytes))
        }
    };
    eprintln!("{test}: {VARIABLE}={seed}");
    seed
}

/// A source of choices (splitmix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another source that depends on this one and a name only, not on how often this one is thrown later.
    pub fn fork(&mut self, name: &str) -> Self {
        let salt =
            name.bytes().fold(self.throw(), |salt, byte| (salt ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        Self(salt)
    }

    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.throw() % bound
    }

    /// True once in so many throws.
    pub fn once_in(&mut self, throws: u64) -> bool {
        self.below(throws) == 0
    }

    /// One of a list, which is not empty.
    pub fn pick<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        let index = usize::try_from(self.below(list.len() as u64)).expect("an index of the list");
        &list[index]
    }
}
