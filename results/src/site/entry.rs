//! The models, the tasks and the ways to reproduce figures, as the caller knows them.

use crate::published::Figure;

/// A model: the content of its card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelCard {
    /// Name on the command line.
    pub name: String,
    /// Name in tables.
    pub title: String,
    /// Title of its paper.
    pub paper: String,
    /// Year of the paper's first version; 0 if it is unknown.
    pub year: u16,
    /// arXiv number; empty if there is none.
    pub arxiv: String,
    /// Growth of time and of memory with the length, such as `O(L·M·E)`.
    pub costs: [String; 2],
    /// Family, whose block recipes give it.
    pub family: String,
    /// Origin of the cases that its numbers are compared with.
    pub reference: String,
    /// Documentation of its variants, each with a heading: text with headings (`# `), lists (`- `)
    /// and indented equations.
    pub texts: Vec<(String, String)>,
    /// Its options with defaults and ranges, in lines.
    pub options: String,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskCard {
    /// Name on the command line.
    pub name: String,
    /// Name in tables.
    pub title: String,
    /// Summary in a sentence.
    pub summary: String,
    /// Publication that introduced it.
    pub paper: String,
    /// Facts by name, such as its length.
    pub facts: Vec<(String, String)>,
    /// Number of classes; 0 if it is unknown.
    pub classes: usize,
    /// True if it tests one ability and counts in no score over tasks.
    pub probe: bool,
}

/// The way to reproduce a published figure.
#[derive(Clone, Debug)]
pub struct Way {
    /// The figure.
    pub figure: &'static Figure,
    /// Command and cost of training it, or the reason why it cannot be trained.
    pub offer: Result<Offer, String>,
}

/// A command that trains as the source of a figure did, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The command.
    pub command: String,
    /// Floating point operations of a seed, with every sequence at its full length.
    pub flops: f64,
    /// False if evaluations are not counted, because the sizes of the splits are unknown.
    pub complete: bool,
    /// Known differences from what the source did.
    pub differences: Vec<String>,
}

impl Offer {
    /// Returns the operations of a seed in units of 10¹⁵.
    pub(super) fn petaflop(&self) -> f64 {
        self.flops / 1e15
    }
}
