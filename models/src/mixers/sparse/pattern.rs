//! Which keys a query sees: the near set A and the far one, as plans for attention.

use super::{Heads, Kind};
use crate::{
    kernels::{Plan, Plans, Sight},
    layers::{BlockLists, Places},
};

/// The settings of the two sets.
#[derive(Clone, Copy)]
pub struct Pattern {
    pub(super) kind: Kind,
    pub(super) heads: Heads,
    /// l.
    pub(super) block: usize,
    /// c.
    pub(super) summary: usize,
    /// Keys after the query are hidden, and the first of each block is a summary: the 2021 code. Of `fixed` only.
    pub(super) causal: bool,
    /// Position 0 sees all and is seen by all, and the sets are counted from position 1: the 2021 code with a CLS token.
    pub(super) hub: bool,
}

impl Pattern {
    /// The same pattern with or without position 0 as hub.
    pub(in crate::mixers) fn with_hub(self, hub: bool) -> Self {
        Self { hub, ..self }
    }

    /// The block, or the window; without what the far set has too where one softmax takes both.
    fn near_lists(&self, length: usize) -> BlockLists {
        let (size, block) = (self.block.min(length), self.block as isize);
        let merged = self.heads == Heads::Merged;
        match self.kind {
            Kind::Fixed => BlockLists::around(length, size, (0, 0), |i, j| {
                !(merged && self.is_summary(j as usize) || self.causal && j > i)
            }),
            Kind::Strided => BlockLists::around(length, size, (1, 1), |i, j| {
                (i - j).abs() <= block && !(merged && (i - j) % block == 0)
            }),
        }
    }

    /// One plan, or one per head.
    pub(super) fn plans(&self, length: usize, heads: usize) -> Plans {
        match self.heads {
            Heads::Merged => Plans::new(vec![self.plan(length, true, true)]),
            Heads::Split => {
                let near = |head| head < heads.div_ceil(2);
                let plan = |head| self.plan(length, near(head), !near(head));
                Plans::new((0..heads).map(plan).collect())
            }
        }
    }

    fn plan(&self, length: usize, near: bool, far: bool) -> Plan {
        let mut plan = Plan::new(0.0);
        let all = Places::every(1, usize::from(self.hub), length);
        let hub = self.hub.then(|| Self::add_hub(&mut plan, length));
        if all.count == 0 {
            return plan;
        }
        let lists = match near {
            true => self.near_lists(all.count),
            false => {
                let blocks = all.count.div_ceil(self.block);
                BlockLists::new(self.block, 1, &vec![Vec::new(); blocks])
            }
        };
        if self.kind == Kind::Strided && far {
            if near {
                plan = plan.revisiting();
                lists.add_to(&mut plan, 0, (all, all), |_, _| {});
            }
            for first in 0..self.block.min(length) {
                let column = Places::every(self.block, first, length);
                let whole = BlockLists::around(column.count, column.count, (0, 0), |_, _| true);
                whole.add_to(&mut plan, 0, (column, column), |_, _| {});
            }
            return plan;
        }
        let summaries = match far {
            true => self.summaries(all),
            false => Vec::new(),
        };
        let summaries = plan.key_blocks_of(&summaries);
        lists.add_to(&mut plan, 0, (all, all), |plan, queries| {
            if let Some(hub) = hub {
                plan.see(hub, None);
            }
            for (keys, places) in &summaries {
                // In the causal form a summary is seen from its own position on.
                let sight = |&place: &u32| {
                    let hidden = (place as usize).saturating_sub(queries.start);
                    Sight::new(hidden.min(queries.len())..queries.len(), None)
                };
                let sights = self.causal.then(|| plan.sights(places.iter().map(sight)));
                plan.see(*keys, sights.as_ref());
            }
        });
        plan
    }

    fn is_summary(&self, position: usize) -> bool {
        let place = position % self.block;
        place >= self.block - self.summary || self.causal && place == 0
    }

    /// Positions of the summaries among `all`.
    fn summaries(&self, all: Places) -> Vec<u32> {
        let indexes = (0..all.count).filter(|&index| self.is_summary(index));
        indexes.map(|index| (all.first + index) as u32).collect()
    }

    /// Lets position 0 see everything, and returns the block of keys that it is.
    fn add_hub(plan: &mut Plan, length: usize) -> usize {
        let everything: Vec<u32> = (0..length as u32).collect();
        let everything = plan.key_blocks_of(&everything);
        plan.query_block([0]);
        for (keys, _) in everything {
            plan.see(keys, None);
        }
        plan.key_block([0])
    }
}
