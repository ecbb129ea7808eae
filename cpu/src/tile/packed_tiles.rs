//! Blocks of numbers as operands of products, in any [`Format`].

use super::Lhs;
use crate::format::Format;
use crate::scratch::Scratch;

/// The role of a block of rows in a product a b.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// a (m, k): columns are terms.
    A,
    /// The transpose of a, (k, m): rows are terms.
    ATransposed,
    /// b (k, n): rows are terms.
    B,
}

/// An operand in the format of a product.
#[derive(Clone, Copy)]
pub struct OperandView<'a> {
    data: &'a [f32],
    /// Elements from one row of the block to the next. Meaningless for tiles of AMX.
    row: usize,
    role: Operand,
}

impl<'a> OperandView<'a> {
    /// Returns the block as the left operand.
    #[inline(always)]
    pub fn left(self) -> Lhs<'a> {
        debug_assert!(self.role != Operand::B, "a right operand");
        match self.role {
            Operand::ATransposed => Lhs::strided(self.data, 1, self.row),
            _ => Lhs::strided(self.data, self.row, 1),
        }
    }

    /// Returns the transpose of a left operand.
    #[inline(always)]
    pub fn transposed(self) -> Self {
        let role = match self.role {
            Operand::ATransposed => Operand::A,
            _ => Operand::ATransposed,
        };
        OperandView { role, ..self }
    }

    /// Returns the block as the right operand, with its row stride.
    #[inline(always)]
    pub fn right(self) -> (&'a [f32], usize) {
        debug_assert!(self.role == Operand::B, "a left operand");
        (self.data, self.row)
    }
}

impl Operand {
    /// Returns the number of 32-bit words of a packed (rows, columns) block.
    pub fn len(self, format: Format, (rows, row): (usize, usize)) -> usize {
        match self {
            Operand::A => format.packed_len(rows, row),
            Operand::ATransposed | Operand::B => format.packed_len(row, rows),
        }
    }

    /// Returns scratch memory for the packed copy of a (rows, columns) block; empty for plain f32.
    pub fn scratch(self, format: Format, block: (usize, usize)) -> Scratch {
        match format {
            Format::F32 => Scratch::default(),
            _ => Scratch::unspecified(self.len(format, block)),
        }
    }

    /// Returns the (rows, columns) block whose rows are `row` apart as an operand in `format`. It
    /// is packed into `space` ([`Operand::scratch`]), or stays where it is in f32.
    #[inline(always)]
    pub fn of<'a>(
        self,
        format: Format,
        (x, row): (&'a [f32], usize),
        (rows, columns): (usize, usize),
        space: &'a mut [f32],
    ) -> OperandView<'a> {
        let data = match format {
            Format::F32 => x,
            _ => {
                self.convert(format, (x, row), (rows, columns), space);
                space
            }
        };
        OperandView {
            data,
            row,
            role: self,
        }
    }

    fn convert(
        self,
        format: Format,
        (x, row): (&[f32], usize),
        (rows, columns): (usize, usize),
        to: &mut [f32],
    ) {
        let strides = match self {
            Operand::A => (row, 1),
            Operand::ATransposed | Operand::B => (1, row),
        };
        let sizes = match self {
            Operand::A => (rows, columns),
            Operand::ATransposed | Operand::B => (columns, rows),
        };
        if format.pack_tiles(x, strides, sizes, self == Operand::B, to) {
            return;
        }
        let to = &mut to[..rows * row];
        to.copy_from_slice(&x[..rows * row]);
        self.convert_in_place(format, to, row);
    }

    /// Converts the rows of a block in place. Not for AMX.
    fn convert_in_place(self, format: Format, x: &mut [f32], row: usize) {
        match self {
            Operand::A => format.convert_columns(x, row),
            Operand::ATransposed | Operand::B => format.convert_rows(x, row),
        }
    }
}

/// Blocks of one shape, packed in the format of a product.
pub struct PackedTiles {
    format: Format,
    role: Operand,
    row: usize,
    /// Words of a packed block.
    len: usize,
    blocks: Scratch,
    /// The unpacked block, if packing is not in place.
    numbers: Scratch,
}

impl PackedTiles {
    /// Allocates `count` blocks of (rows, row) numbers.
    pub fn new(format: Format, role: Operand, count: usize, (rows, row): (usize, usize)) -> Self {
        let len = role.len(format, (rows, row));
        let in_place = !format.is_amx();
        PackedTiles {
            format,
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

    /// Packs block `index`. `write` fills the first (rows, columns); the rest is zero or stale.
    #[inline(always)]
    pub fn pack(
        &mut self,
        index: usize,
        (rows, columns): (usize, usize),
        write: impl FnOnce(&mut [f32]),
    ) {
        let block = &mut self.blocks[index * self.len..][..self.len];
        if self.format.is_amx() {
            write(&mut self.numbers);
            let numbers = (&*self.numbers, self.row);
            self.role
                .convert(self.format, numbers, (rows, columns), block);
        } else {
            write(block);
            self.role
                .convert_in_place(self.format, &mut block[..rows * self.row], self.row);
        }
    }

    /// Returns a block as an operand.
    #[inline(always)]
    pub fn operand(&self, index: usize) -> OperandView<'_> {
        OperandView {
            data: &self.blocks[index * self.len..][..self.len],
            row: self.row,
            role: self.role,
        }
    }

    /// Returns a block as the left operand.
    #[inline(always)]
    pub fn left(&self, index: usize) -> Lhs<'_> {
        self.operand(index).left()
    }

    /// Returns a block as the right operand, with its row stride.
    #[inline(always)]
    pub fn right(&self, index: usize) -> (&[f32], usize) {
        self.operand(index).right()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sampler;
    use crate::tile::SIDE;

    #[test]
    fn blocks_of_few_rows_are_rounded_as_full_ones() {
        let (format, row) = (Format::Bf16Emulated, 16);
        let x = Sampler::new(95).normal(SIDE * row, 1.0);
        let mut rounded = x.clone();
        format.convert_rows(&mut rounded, row);
        for role in [Operand::A, Operand::ATransposed, Operand::B] {
            for rows in [1, 17, SIDE] {
                let len = rows * row;
                let mut tiles = PackedTiles::new(format, role, 2, (SIDE, row));
                tiles.pack(1, (rows, row), |block| {
                    block[..len].copy_from_slice(&x[..len]);
                });
                assert_eq!(tiles.operand(1).data[..len], rounded[..len]);
            }
        }
    }
}
