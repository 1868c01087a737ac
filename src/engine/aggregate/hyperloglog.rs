//! About how many different 64-bit hashes there were, in 4,096 small registers.
//!
//! The registers are those of Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog: the analysis of
//! a near-optimal cardinality estimation algorithm" (2007). The estimate is the improved one of
//! Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (arXiv 1702.01284,
//! 2017), algorithm 6: without bias from one hash to more than there are, so it needs neither
//! tables nor a switch to linear counting. It is of the registers alone, not of the order in which
//! they rose, and takes only sums, products, quotients and square roots, which IEEE 754 fixes to
//! the last bit: every machine shows the same number.

use std::f64::consts::LN_2;

/// How many bits of a hash choose its register.
const INDEX_BITS: u32 = 12;
const REGISTERS: usize = 1 << INDEX_BITS;
/// How many bits of a hash are left for its rank.
const RANK_BITS: u32 = u64::BITS - INDEX_BITS;
/// The rank of a hash whose bits that are left are all 0.
const MAX_RANK: u8 = 53;
const _: () = assert!(MAX_RANK as u32 == RANK_BITS + 1);
/// Ranks are stored in six bits each.
const RANKS: usize = 64;

/// The greatest rank of the hashes of each register, 0 where there was none. What it holds depends
/// on which hashes were taken in, not on their order, nor on how often each came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Registers([u8; REGISTERS]);

impl Registers {
    /// How many bytes [`Registers::write`] appends.
    pub(super) const BYTES: usize = REGISTERS * 6 / 8;

    /// Takes one hash in.
    pub(super) fn insert(&mut self, hash: u64) {
        let (register, rank) = place(hash);
        self.0[register] = self.0[register].max(rank);
    }

    /// Takes in all hashes that `other` has taken in.
    pub(super) fn combine(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = theirs.max(*mine);
        }
    }

    /// About how many different hashes there were, with a standard error of 1.04 / √4,096, that is
    /// 1.63 %. It never falls when a hash is taken in. Infinite when all registers are full.
    pub(super) fn estimate(&self) -> f64 {
        let all = f64::from(1_u32 << INDEX_BITS);
        let mut registers_of = [0_u32; RANKS];
        for &rank in &self.0 {
            registers_of[usize::from(rank)] += 1;
        }
        let share_of = |rank: u8| f64::from(registers_of[usize::from(rank)]) / all;
        let mut sum = tau(1.0 - share_of(MAX_RANK));
        for rank in (1..MAX_RANK).rev() {
            sum = 0.5 * (sum + share_of(rank));
        }
        sum += sigma(share_of(0));
        all / (2.0 * LN_2 * sum)
    }

    /// Appends the registers, six bits each.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (fours, _) = self.0.as_chunks::<4>();
        for four in fours {
            let bits = four
                .iter()
                .rev()
                .fold(0, |bits, &rank| bits << 6 | u32::from(rank));
            let [a, b, c, _] = bits.to_le_bytes();
            out.extend_from_slice(&[a, b, c]);
        }
    }

    /// Reads what [`Registers::write`] appended; `None` if it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::BYTES {
            return None;
        }
        let mut registers = Self::default();
        let (fours, _) = registers.0.as_chunks_mut::<4>();
        let (threes, _) = bytes.as_chunks::<3>();
        for (four, &[a, b, c]) in fours.iter_mut().zip(threes) {
            let bits = u32::from_le_bytes([a, b, c, 0]);
            *four = [0, 6, 12, 18].map(|shift| (bits >> shift & 0x3f) as u8);
        }
        let in_range = registers.0.iter().all(|&rank| rank <= MAX_RANK);
        in_range.then_some(registers)
    }
}

impl Default for Registers {
    fn default() -> Self {
        Self([0; REGISTERS])
    }
}

/// The register of a hash: its first bits; and its rank: where the first 1 is in the others.
fn place(hash: u64) -> (usize, u8) {
    let register = (hash >> RANK_BITS) as usize;
    let zeros = (hash << INDEX_BITS).leading_zeros().min(RANK_BITS);
    (register, zeros as u8 + 1)
}

/// σ(x) = x + Σ x^(2^k) · 2^(k−1), k from 1: corrects for the registers that have seen nothing.
#[allow(
    clippy::float_cmp,
    reason = "it ends when a term no longer changes the sum"
)]
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let mut weight = 1.0;
    let mut sum = x;
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight *= 2.0;
        if sum == before {
            return sum;
        }
    }
}

/// τ(x) = (1 − x − Σ (1 − x^(2^−k))² · 2^−k) / 3, k from 1: corrects for those that are full.
#[allow(
    clippy::float_cmp,
    reason = "it ends when a term no longer changes the sum"
)]
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let mut weight = 1.0;
    let mut sum = 1.0 - x;
    loop {
        x = x.sqrt();
        weight *= 0.5;
        let before = sum;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As good as random, and the same in every run: `SplitMix64`.
    fn hashes(seed: u64) -> impl Iterator<Item = u64> {
        (1..).map(move |n: u64| {
            let mut z = (seed << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        })
    }

    #[test]
    fn a_hash_has_a_register_and_a_rank() {
        assert_eq!(place(0), (0, MAX_RANK));
        assert_eq!(place(1), (0, 52));
        assert_eq!(place(u64::MAX), (4095, 1));
        assert_eq!(place(0x0018 << 48), (1, 1));
        assert_eq!(place(0x0014 << 48), (1, 2));
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "for whoever wants to see the errors")]
    fn the_standard_error_is_at_most_1_7_percent_and_there_is_no_bias() {
        const SKETCHES: u32 = 400;
        const SIZES: [u32; 7] = [201, 500, 1_000, 3_000, 6_000, 12_000, 24_000];
        let mut bias = [0.0; SIZES.len()];
        let mut squares = [0.0; SIZES.len()];
        for seed in 0..SKETCHES {
            let mut registers = Registers::default();
            let (mut hashes, mut taken) = (hashes(seed.into()), 0);
            for (at, size) in SIZES.into_iter().enumerate() {
                hashes
                    .by_ref()
                    .take((size - taken) as usize)
                    .for_each(|hash| registers.insert(hash));
                taken = size;
                let error = registers.estimate() / f64::from(size) - 1.0;
                bias[at] += error / f64::from(SKETCHES);
                squares[at] += error * error / f64::from(SKETCHES);
            }
        }
        for (at, size) in SIZES.into_iter().enumerate() {
            let error = squares[at].sqrt();
            println!(
                "{size} items: error {:.3} %, bias {:.3} %",
                error * 100.0,
                bias[at] * 100.0
            );
            assert!(error < 0.017, "{size} items: {error}");
            assert!(bias[at].abs() < 0.0025, "{size} items: {}", bias[at]);
        }
    }

    #[test]
    fn the_estimate_never_falls_and_has_no_end() {
        let mut registers = Registers::default();
        let mut before = registers.estimate();
        assert!(before == 0.0);
        for hash in hashes(7).take(3_000) {
            registers.insert(hash);
            assert!(registers.estimate() >= before);
            before = registers.estimate();
        }
        let full = Registers([MAX_RANK; REGISTERS]);
        assert!(full.estimate().is_infinite());
        let mut nearly = full;
        nearly.0[17] = MAX_RANK - 1;
        assert!(nearly.estimate() > 1e18 && nearly.estimate().is_finite());
    }

    #[test]
    fn registers_come_back_and_ranks_out_of_range_do_not() {
        let mut registers = Registers::default();
        hashes(3)
            .take(5_000)
            .for_each(|hash| registers.insert(hash));
        registers.insert(0);
        let mut bytes = Vec::new();
        registers.write(&mut bytes);
        assert_eq!(bytes.len(), Registers::BYTES);
        assert_eq!(Registers::read(&bytes), Some(registers));
        assert_eq!(Registers::read(&bytes[1..]), None);
        bytes[0] = 54;
        assert_eq!(Registers::read(&bytes), None);
    }
}
