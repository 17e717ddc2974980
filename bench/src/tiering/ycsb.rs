//! The request distributions of YCSB's core workload: which record a request reads, and how often each is read.
//!
//! - The zipfian generator is the one of J. Gray et al., "Quickly Generating Billion-Record Synthetic Databases",
//!   SIGMOD 1994. It approximates the zipfian distribution: the two most frequent ranks have their exact share, and the
//!   others follow a power that is fitted to the sum.
//! - *Zipfian* is YCSB 0.17.0's scrambled zipfian: a zipfian rank among 10,000,000,000 with the constant 0.99, hashed
//!   by 64-bit FNV-1a, modulo the number of records.
//! - *Latest* is YCSB's skewed latest: the newest record less a zipfian rank. No record is inserted during the run.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::Distribution;

/// YCSB's zipfian constant.
pub const CONSTANT: f64 = 0.99;

/// The number of ranks of YCSB's scrambled zipfian distribution, whatever the number of records is.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;

/// Ranks whose share is added to their record. The other ranks are spread evenly: each record has thousands of them.
const SINGLE_RANKS: u64 = 1 << 22;

/// The zipfian generator of Gray et al.
#[derive(Clone, Debug)]
pub struct Zipfian {
    ranks: u64,
    zeta: f64,
    eta: f64,
}

/// The sum of 1/i^[`CONSTANT`] for i from 1 to `n`.
fn zeta(n: u64) -> f64 {
    /// Terms that are added one by one. The rest follows the Euler-Maclaurin formula.
    const SINGLE: u64 = 10_000;
    let term = |i: u64| (i as f64).powf(-CONSTANT);
    let sum: f64 = (1..=n.min(SINGLE)).map(term).sum();
    if n <= SINGLE {
        return sum;
    }
    let integral = |i: u64| (i as f64).powf(1.0 - CONSTANT) / (1.0 - CONSTANT);
    let slope = |i: u64| CONSTANT * (i as f64).powf(-CONSTANT - 1.0) / 12.0;
    sum + integral(n) - integral(SINGLE) + (term(n) - term(SINGLE)) / 2.0 + slope(SINGLE) - slope(n)
}

impl Zipfian {
    /// The distribution over so many ranks, at least three.
    pub fn new(ranks: u64) -> Self {
        let zeta_all = zeta(ranks);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - CONSTANT)) / (1.0 - zeta(2) / zeta_all);
        Self { ranks, zeta: zeta_all, eta }
    }

    /// A random rank, from 0.
    pub fn rank(&self, rng: &mut Pcg64Mcg) -> u64 {
        let uniform: f64 = rng.random();
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < zeta(2) {
            return 1;
        }
        let rank = self.ranks as f64 * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - CONSTANT));
        (rank as u64).min(self.ranks - 1)
    }

    /// The share of the requests for ranks below `rank`.
    fn below(&self, rank: u64) -> f64 {
        match rank {
            0 => 0.0,
            1 => 1.0 / self.zeta,
            // The inverse of the formula in `rank`.
            _ => ((rank as f64 / self.ranks as f64).powf(1.0 - CONSTANT) - 1.0 + self.eta) / self.eta,
        }
    }

    /// The share of the requests for `rank`.
    pub fn share(&self, rank: u64) -> f64 {
        self.below(rank + 1) - self.below(rank)
    }
}

/// 64-bit FNV-1a of the eight bytes of `value`, the lowest first; without its sign, as YCSB has it.
pub fn fnv(value: u64) -> u64 {
    let hash = value
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211));
    hash.cast_signed().unsigned_abs()
}

/// Chooses records.
#[derive(Clone, Debug)]
pub struct Requests {
    distribution: Distribution,
    records: u64,
    zipfian: Zipfian,
}

impl Requests {
    /// Requests for `records` records, at least four.
    pub fn new(distribution: Distribution, records: u64) -> Self {
        let ranks = match distribution {
            Distribution::Zipfian => SCRAMBLED_RANKS,
            // YCSB passes the number of the newest record for the number of ranks, so that record 0 is never read.
            Distribution::Latest => records - 1,
        };
        Self { distribution, records, zipfian: Zipfian::new(ranks) }
    }

    fn record_of(&self, rank: u64) -> u64 {
        match self.distribution {
            Distribution::Zipfian => fnv(rank) % self.records,
            Distribution::Latest => self.records - 1 - rank,
        }
    }

    /// The record that the next request reads.
    pub fn next(&self, rng: &mut Pcg64Mcg) -> u64 {
        self.record_of(self.zipfian.rank(rng))
    }

    /// The share of the requests that read each record. The sum is 1.
    pub fn shares(&self) -> Vec<f64> {
        let single = self.zipfian.ranks.min(SINGLE_RANKS);
        let mut shares = vec![(1.0 - self.zipfian.below(single)) / self.records as f64; self.records as usize];
        let mut below = 0.0;
        for rank in 0..single {
            let next = self.zipfian.below(rank + 1);
            shares[self.record_of(rank) as usize] += next - below;
            below = next;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = 1000;
    const DRAWS: u64 = 2_000_000;

    /// How often each number up to [`RECORDS`] was drawn, as a share.
    fn drawn(mut next: impl FnMut(&mut Pcg64Mcg) -> u64) -> Vec<f64> {
        let mut rng = Pcg64Mcg::new(7);
        let mut counts = vec![0.0; RECORDS as usize];
        for _ in 0..DRAWS {
            counts[next(&mut rng) as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    /// Asserts that drawn shares are those expected, within five standard deviations.
    fn assert_near(drawn: &[f64], expected: &[f64]) {
        for (number, (drawn, expected)) in drawn.iter().zip(expected).enumerate() {
            let deviation = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
            assert!((drawn - expected).abs() < 5.0 * deviation + 1e-9, "{number}: {drawn} instead of {expected}");
        }
    }

    #[test]
    fn zeta_is_the_sum_that_ycsb_states_for_its_number_of_ranks() {
        assert!((zeta(SCRAMBLED_RANKS) - 26.469_028_201_783_02).abs() < 1e-6, "{}", zeta(SCRAMBLED_RANKS));
        let added: f64 = (1..=100_000_u32).map(|i| f64::from(i).powf(-CONSTANT)).sum();
        assert!((zeta(100_000) - added).abs() < 1e-9, "{} is not {added}", zeta(100_000));
    }

    #[test]
    fn ranks_have_the_shares_of_the_zipfian_distribution() {
        let zipfian = Zipfian::new(RECORDS);
        let exact: Vec<f64> = (1..=RECORDS).map(|k| 1.0 / ((k as f64).powf(CONSTANT) * zeta(RECORDS))).collect();
        let shares: Vec<f64> = (0..RECORDS).map(|rank| zipfian.share(rank)).collect();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        // The paper's generator is exact for two ranks. The next few are too frequent, and the sums are near.
        for rank in 0..2 {
            assert!((shares[rank] - exact[rank]).abs() < 1e-12, "{rank}: {} instead of {}", shares[rank], exact[rank]);
        }
        let sums = |shares: &[f64]| [10, 30, 100, 300, 900].map(|end| shares[..end].iter().sum::<f64>());
        for (sum, exact) in sums(&shares).into_iter().zip(sums(&exact)) {
            assert!((sum / exact - 1.0).abs() < 0.05, "{sum} instead of {exact}");
        }
        assert_near(&drawn(|rng| zipfian.rank(rng)), &shares);
    }

    #[test]
    fn the_hash_is_64_bit_fnv_1a() {
        // Published: the hash of no bytes is the offset basis. Eight zero bytes multiply it by the prime eight times.
        let zeros = (0..8).fold(0xcbf2_9ce4_8422_2325_u64, |hash, _| hash.wrapping_mul(0x100_0000_01b3));
        assert_eq!(fnv(0), zeros.cast_signed().unsigned_abs());
        assert!(fnv(1) != fnv(0) && fnv(1) <= i64::MAX as u64 + 1);
    }

    #[test]
    fn requests_have_the_shares_that_they_tell() {
        for distribution in [Distribution::Zipfian, Distribution::Latest] {
            let requests = Requests::new(distribution, RECORDS);
            let shares = requests.shares();
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6);
            assert_near(&drawn(|rng| requests.next(rng)), &shares);
        }
    }

    #[test]
    fn the_newest_record_is_the_most_frequent_and_the_oldest_is_never_read() {
        let shares = Requests::new(Distribution::Latest, RECORDS).shares();
        assert!((shares[RECORDS as usize - 1] - 1.0 / zeta(RECORDS - 1)).abs() < 1e-9);
        assert_eq!(shares[0], 0.0);
    }

    #[test]
    fn the_hottest_record_of_scrambled_zipfian_has_the_published_share() {
        let shares = Requests::new(Distribution::Zipfian, 100_000).shares();
        let most = shares.iter().copied().fold(0.0, f64::max);
        // 1/zeta(10^10) is 3.8 %; half of all requests are spread over all records.
        assert!((most - 0.037_78).abs() < 0.000_1, "{most}");
        assert_eq!(shares[(fnv(0) % 100_000) as usize], most);
    }
}
