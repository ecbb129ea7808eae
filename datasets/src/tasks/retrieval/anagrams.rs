//! Synthetic data whose topics share every byte (`topics = anagrams`): a word of one topic is an
//! anagram of a word of each other topic.
//!
//! A topic has [`WORDS`] words of five letters. Word w of every topic has the same letters, in an
//! order specific to the topic, so that texts of different topics have equal counts of every byte,
//! except for the word that is cut off at their end. A text cycles through all words, each time in
//! another order. The topic of [`STRAY`] words in a hundred is drawn at random. The lexicon depends
//! only on the seed: all splits share it.

use rand_chacha::ChaCha8Rng;

use super::Options;
use crate::error::Result;
use crate::rng::{below, stream};
use crate::{Progress, SplitWriter};

const TOPICS: usize = 4;
const WORDS: usize = 8;
/// Number of words in a hundred whose topic is drawn.
const STRAY: u32 = 50;

const LETTERS: usize = 5;
const CONSONANTS: &[u8] = b"bcdfghjklmnprstvwz";
const VOWELS: &[u8] = b"aeiou";

type Word = [u8; LETTERS];

/// Words of each topic: those of one index are anagrams.
pub(super) struct Lexicon([[Word; WORDS]; TOPICS]);

impl Lexicon {
    pub(super) fn new(seed: u64) -> Lexicon {
        let mut rng = stream("retrieval anagrams", seed, 0);
        let mut lexicon = Lexicon([[Word::default(); WORDS]; TOPICS]);
        for index in 0..WORDS {
            loop {
                let letters = letters(&mut rng);
                for topic in &mut lexicon.0 {
                    topic[index] = letters;
                    shuffle(&mut topic[index], &mut rng);
                }
                if lexicon.is_new(index) {
                    break;
                }
            }
        }
        lexicon
    }

    /// Returns whether the words of this index differ from each other and from all previous words.
    fn is_new(&self, index: usize) -> bool {
        let all = |upto: usize| self.0.iter().flat_map(move |topic| &topic[..upto]);
        let mut topics = self.0.iter().enumerate();
        topics.all(|(number, topic)| {
            let word = &topic[index];
            let others = self.0[..number].iter().map(|other| &other[index]);
            others.chain(all(index)).all(|other| other != word)
        })
    }

    /// Draws a text of `length` bytes.
    fn text(&self, rng: &mut ChaCha8Rng, topic: usize, length: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(length + LETTERS);
        let mut order: [usize; WORDS] = std::array::from_fn(|index| index);
        while text.len() < length {
            shuffle(&mut order, rng);
            for index in order {
                let topic = match below(rng, 100) < STRAY {
                    true => below(rng, TOPICS as u32) as usize,
                    false => topic,
                };
                text.extend_from_slice(&self.0[topic][index]);
                text.push(b' ');
            }
        }
        text.truncate(length);
        text
    }
}

/// Draws three consonants and two vowels, all different.
fn letters(rng: &mut ChaCha8Rng) -> Word {
    let (mut consonants, mut vowels) = (CONSONANTS.to_vec(), VOWELS.to_vec());
    shuffle(&mut consonants, rng);
    shuffle(&mut vowels, rng);
    let (c, v) = (&consonants, &vowels);
    [c[0], c[1], c[2], v[0], v[1]]
}

/// Shuffles items into a random order, each equally likely.
fn shuffle<T>(items: &mut [T], rng: &mut ChaCha8Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last as u32 + 1) as usize);
    }
}

pub(super) fn draw(
    options: &Options,
    progress: &dyn Progress,
    writer: &mut SplitWriter,
) -> Result<()> {
    let lexicon = Lexicon::new(options.drawn.seed);
    let length = options.max_length as usize;
    options
        .drawn
        .draw(&super::INFO, progress, |split, rng, label| {
            let topics = super::synthetic::topics(rng, label, TOPICS);
            let texts = topics.map(|topic| lexicon.text(rng, topic, length));
            writer.row(split, &[&texts[0], &texts[1]], label)
        })?;
    writer.note("a stand-in drawn here, not papers: whether two texts of meaningless words share a topic, topics being anagrams");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_index_are_anagrams_and_no_word_occurs_twice() {
        for seed in 0..20 {
            let lexicon = Lexicon::new(seed).0;
            let sorted = |mut word: Word| {
                word.sort_unstable();
                word
            };
            for index in 0..WORDS {
                let first = sorted(lexicon[0][index]);
                assert!(lexicon.iter().all(|topic| sorted(topic[index]) == first));
            }
            let mut all = lexicon.concat();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), TOPICS * WORDS);
        }
    }
}
