//! Philox4x32-10, a counter-based generator. Salmon et al., 2011, "Parallel random numbers: as easy
//! as 1, 2, 3".
//!
//! A block of four 32-bit words is a pure function of a 128-bit counter and a 64-bit key, so any
//! element of any stream can be computed alone, by any thread, on any device, in any order.
//!
//! A *row* of words is laid out so that a vector unit can write it without shuffling: 64 words come
//! from 16 consecutive blocks, first the 16 first words, then the 16 second words, and so on. Word
//! `i` of a row is word `i % 64 / 16` of block `i / 64 * 16 + i % 16`. The counter of block `b` is
//! `[b, rest[0], rest[1], rest[2]]`.

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Blocks computed side by side.
const LANES: usize = 16;
/// Words of 16 consecutive blocks: 64. Writing can start at any multiple of it in a row.
pub const GROUP: usize = 4 * LANES;

/// Writes words `first..first + out.len()` of a row to `out`. The row is that of `key` and of the
/// last three words `rest` of the counter. `first` is a multiple of [`GROUP`].
pub fn fill(key: [u32; 2], rest: [u32; 3], first: usize, out: &mut [u32]) {
    debug_assert_eq!(first % GROUP, 0);
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions were detected just now.
            return unsafe { fill_avx512(key, rest, first, out) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { fill_avx2(key, rest, first, out) };
        }
    }
    fill_portable(key, rest, first, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fill_avx512(key: [u32; 2], rest: [u32; 3], first: usize, out: &mut [u32]) {
    fill_portable(key, rest, first, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(key: [u32; 2], rest: [u32; 3], first: usize, out: &mut [u32]) {
    fill_portable(key, rest, first, out);
}

/// Computes the words; inlined into each version above, so that the compiler vectorises it for
/// each.
#[inline(always)]
fn fill_portable(key: [u32; 2], rest: [u32; 3], first: usize, out: &mut [u32]) {
    let mut block = (first / 4) as u32;
    let mut groups = out.chunks_exact_mut(GROUP);
    for group in &mut groups {
        group.copy_from_slice(&group_of(key, rest, block));
        block = block.wrapping_add(LANES as u32);
    }
    let tail = groups.into_remainder();
    if !tail.is_empty() {
        tail.copy_from_slice(&group_of(key, rest, block)[..tail.len()]);
    }
}

#[inline(always)]
fn group_of(mut key: [u32; 2], rest: [u32; 3], first_block: u32) -> [u32; GROUP] {
    let mut counter = [
        std::array::from_fn::<u32, LANES, _>(|lane| first_block.wrapping_add(lane as u32)),
        [rest[0]; LANES],
        [rest[1]; LANES],
        [rest[2]; LANES],
    ];
    for _ in 0..10 {
        let [a, b, c, d] = counter;
        for lane in 0..LANES {
            let left = u64::from(MULTIPLIER[0]) * u64::from(a[lane]);
            let right = u64::from(MULTIPLIER[1]) * u64::from(c[lane]);
            counter[0][lane] = (right >> 32) as u32 ^ b[lane] ^ key[0];
            counter[1][lane] = right as u32;
            counter[2][lane] = (left >> 32) as u32 ^ d[lane] ^ key[1];
            counter[3][lane] = left as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    let mut group = [0; GROUP];
    for (words, out) in counter.iter().zip(group.chunks_exact_mut(LANES)) {
        out.copy_from_slice(words);
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
        let group = group_of(key, [counter[1], counter[2], counter[3]], counter[0]);
        std::array::from_fn(|word| group[word * LANES])
    }

    /// Known answers of the reference implementation (Random123, file `kat_vectors`, philox4x32
    /// 10).
    #[test]
    fn meets_the_published_vectors() {
        assert_eq!(
            block([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            block([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            block(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn every_version_writes_the_same_words_from_any_group_on() {
        let (key, rest) = ([7, 8], [1, 2, 3]);
        let mut whole = vec![0; 5 * GROUP + 13];
        fill_portable(key, rest, 0, &mut whole);
        for first in (0..whole.len()).step_by(GROUP) {
            for length in [1, GROUP - 1, GROUP, GROUP + 1] {
                let expected = &whole[first..(first + length).min(whole.len())];
                let mut part = vec![0; expected.len()];
                fill(key, rest, first, &mut part);
                assert_eq!(part, expected, "from {first}, {length} words");
            }
        }
    }
}
