//! Blocks of numbers as operands of products: themselves, or what [`Factors`] make of them.

use super::Left;
use crate::kernels::factors::Factors;
use crate::kernels::scratch::Scratch;

/// What the rows of a block of numbers are to a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels) enum Role {
    /// Rows of a left operand: columns are terms.
    LeftRows,
    /// Columns of a left operand: rows are terms.
    LeftColumns,
    /// Rows of a right operand: rows are terms.
    RightRows,
}

/// An operand as products take it.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Factor<'a> {
    data: &'a [f32],
    /// From one row of the block to the next, where rows are left of it.
    row: usize,
    role: Role,
}

impl<'a> Factor<'a> {
    /// As a left operand.
    #[inline(always)]
    pub(in crate::kernels) fn left(self) -> Left<'a> {
        debug_assert!(self.role != Role::RightRows, "a right operand");
        match self.role {
            Role::LeftColumns => Left::strided(self.data, 1, self.row),
            _ => Left::strided(self.data, self.row, 1),
        }
    }

    /// Numbers whose columns were terms, with their rows as terms, or the other way round.
    #[inline(always)]
    pub(in crate::kernels) fn turned(self) -> Self {
        let role = match self.role {
            Role::LeftColumns => Role::LeftRows,
            _ => Role::LeftColumns,
        };
        Factor { role, ..self }
    }

    /// As a right operand, and how far apart its rows are.
    #[inline(always)]
    pub(in crate::kernels) fn right(self) -> (&'a [f32], usize) {
        debug_assert!(self.role == Role::RightRows, "a left operand");
        (self.data, self.row)
    }
}

impl Role {
    /// Floats that a block of so many rows of so many numbers takes as products take it.
    pub(in crate::kernels) fn len(self, factors: Factors, (rows, row): (usize, usize)) -> usize {
        match self {
            Role::LeftRows => factors.words(rows, row),
            Role::LeftColumns | Role::RightRows => factors.words(row, rows),
        }
    }

    /// Room for a block of so many rows of so many numbers, if it becomes something else than itself.
    pub(in crate::kernels) fn space(self, factors: Factors, block: (usize, usize)) -> Scratch {
        match factors {
            Factors::F32 => Scratch::default(),
            _ => Scratch::unspecified(self.len(factors, block)),
        }
    }

    /// The first columns of a block of rows of `row` numbers, as products take them: in `space` unless that is the block itself.
    #[inline(always)]
    pub(in crate::kernels) fn of<'a>(
        self,
        factors: Factors,
        (x, row): (&'a [f32], usize),
        (rows, columns): (usize, usize),
        space: &'a mut [f32],
    ) -> Factor<'a> {
        let data = match factors {
            Factors::F32 => x,
            _ => {
                self.convert(factors, (x, row), (rows, columns), space);
                space
            }
        };
        Factor {
            data,
            row,
            role: self,
        }
    }

    fn convert(
        self,
        factors: Factors,
        (x, row): (&[f32], usize),
        (rows, columns): (usize, usize),
        to: &mut [f32],
    ) {
        let strides = match self {
            Role::LeftRows => (row, 1),
            Role::LeftColumns | Role::RightRows => (1, row),
        };
        let sizes = match self {
            Role::LeftRows => (rows, columns),
            Role::LeftColumns | Role::RightRows => (columns, rows),
        };
        if factors.pack_tiles(x, strides, sizes, self == Role::RightRows, to) {
            return;
        }
        let to = &mut to[..rows * row];
        to.copy_from_slice(&x[..rows * row]);
        self.alter(factors, to, row);
    }

    /// Makes of the rows of a block what products take, in place.
    fn alter(self, factors: Factors, x: &mut [f32], row: usize) {
        match self {
            Role::LeftRows => factors.columns(x, row),
            Role::LeftColumns | Role::RightRows => factors.rows(x, row),
        }
    }
}

/// Blocks of one shape that are kept as products take them.
pub(in crate::kernels) struct Held {
    factors: Factors,
    role: Role,
    row: usize,
    /// Floats of a block.
    len: usize,
    blocks: Scratch,
    /// Where a block is written that becomes something else than itself.
    numbers: Scratch,
}

impl Held {
    /// Room for `count` blocks, each of so many rows of so many numbers.
    pub(in crate::kernels) fn new(
        factors: Factors,
        role: Role,
        count: usize,
        (rows, row): (usize, usize),
    ) -> Self {
        let len = role.len(factors, (rows, row));
        let in_place = !factors.are_tiles();
        Held {
            factors,
            role,
            row,
            len,
            blocks: match in_place {
                true => Scratch::zeros(count * len),
                false => Scratch::unspecified(count * len),
            },
            numbers: match in_place {
                true => Scratch::default(),
                false => Scratch::zeros(rows * row),
            },
        }
    }

    /// Takes a block of which `write` writes so many rows, and in them so many columns; others are zeros, or what was there.
    #[inline(always)]
    pub(in crate::kernels) fn load(
        &mut self,
        index: usize,
        (rows, columns): (usize, usize),
        write: impl FnOnce(&mut [f32]),
    ) {
        let block = &mut self.blocks[index * self.len..][..self.len];
        if self.factors.are_tiles() {
            write(&mut self.numbers);
            let numbers = (&*self.numbers, self.row);
            self.role
                .convert(self.factors, numbers, (rows, columns), block);
        } else {
            write(block);
            self.role
                .alter(self.factors, &mut block[..rows * self.row], self.row);
        }
    }

    #[inline(always)]
    pub(in crate::kernels) fn factor(&self, index: usize) -> Factor<'_> {
        Factor {
            data: &self.blocks[index * self.len..][..self.len],
            row: self.row,
            role: self.role,
        }
    }

    /// A block as a left operand.
    #[inline(always)]
    pub(in crate::kernels) fn left(&self, index: usize) -> Left<'_> {
        self.factor(index).left()
    }

    /// A block as a right operand.
    #[inline(always)]
    pub(in crate::kernels) fn right(&self, index: usize) -> (&[f32], usize) {
        self.factor(index).right()
    }
}
