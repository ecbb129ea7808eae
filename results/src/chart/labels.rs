//! Placement of names beside the discs they belong to.

use super::font;
use super::scene::{Anchor, Point, Rect, Text};
use super::style::Paint;

/// Pixels between a disc and its name.
const GAP: f64 = 4.0;

/// Something with a name: a disc in a chart.
pub(super) struct Named<'a> {
    pub(super) middle: Point,
    pub(super) radius: f64,
    pub(super) name: &'a str,
}

/// Returns the name of each disc with free space beside, above or below it: within `frame`, without
/// overlapping another name or the centre of another disc. Discs are placed in the order of the
/// list.
pub(super) fn beside(discs: &[Named], frame: &Rect, size: f64) -> Vec<Option<Text>> {
    let mut taken: Vec<Rect> = Vec::new();
    let mut texts = Vec::new();
    for (index, disc) in discs.iter().enumerate() {
        let free = |text: &Text| {
            let bounds = text.bounds();
            let others = discs
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            frame.holds(&bounds)
                && taken.iter().all(|taken| !taken.overlaps(&bounds))
                && others
                    .map(|(_, other)| Rect::around(other.middle, 0.7 * other.radius))
                    .all(|core| !core.overlaps(&bounds))
        };
        let text = choices(disc, size).into_iter().find(free);
        taken.extend(text.as_ref().map(Text::bounds));
        texts.push(text);
    }
    texts
}

fn choices(disc: &Named, size: f64) -> [Text; 4] {
    let ((x, y), away) = (disc.middle, disc.radius + GAP);
    let level = y + font::CAPITAL * size / 2.0;
    [
        ((x + away, level), Anchor::Start),
        ((x - away, level), Anchor::End),
        ((x, y - away), Anchor::Middle),
        ((x, y + away + font::CAPITAL * size), Anchor::Middle),
    ]
    .map(|(at, anchor)| Text {
        at,
        anchor,
        size,
        paint: Paint::Ink,
        words: disc.name.to_owned(),
        halo: true,
    })
}

/// Returns heights near the wanted ones, in their order, such that each is at least `apart` below
/// the previous one and, if possible, all are between `top` and `bottom`. The wanted heights go
/// downwards.
pub(super) fn spread(wanted: &[f64], apart: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut heights: Vec<f64> = Vec::new();
    for height in wanted {
        let least = heights.last().map_or(top, |above| above + apart);
        heights.push(height.max(least));
    }
    let mut most = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(most);
        most = *height - apart;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Rect = Rect {
        left: 0.0,
        top: 0.0,
        right: 200.0,
        bottom: 100.0,
    };

    fn disc(x: f64, y: f64) -> Named<'static> {
        Named {
            middle: (x, y),
            radius: 5.0,
            name: "performer",
        }
    }

    #[test]
    fn names_avoid_each_other_and_the_frame() {
        let discs = [disc(20.0, 50.0), disc(190.0, 50.0), disc(20.0, 55.0)];
        let texts = beside(&discs, &FRAME, 10.0);
        let bounds: Vec<Rect> = texts.iter().flatten().map(Text::bounds).collect();
        assert!(texts[0].is_some() && texts[1].is_some());
        assert!(bounds[0].left > 20.0 && bounds[1].right < 190.0);
        for (index, one) in bounds.iter().enumerate() {
            assert!(FRAME.holds(one));
            assert!(bounds[..index].iter().all(|other| !other.overlaps(one)));
        }
    }

    #[test]
    fn a_name_does_not_cover_the_middle_of_another_disc() {
        let mut large = disc(75.0, 62.0);
        large.radius = 20.0;
        let alone = beside(&[disc(20.0, 50.0)], &FRAME, 10.0);
        let both = beside(&[disc(20.0, 50.0), large], &FRAME, 10.0);
        let place = |texts: &[Option<Text>]| texts[0].as_ref().map(|text| text.at);
        assert!(place(&alone).is_some_and(|at| at.0 > 20.0));
        assert_ne!(place(&alone), place(&both));
    }

    #[test]
    fn a_name_without_room_is_left_out() {
        let narrow = Rect {
            right: 30.0,
            ..FRAME
        };
        assert!(beside(&[disc(15.0, 50.0)], &narrow, 10.0)[0].is_none());
    }

    #[test]
    fn heights_are_spread_and_stay_inside() {
        assert_eq!(
            spread(&[10.0, 12.0, 60.0], 10.0, 0.0, 100.0),
            [10.0, 20.0, 60.0]
        );
        assert_eq!(
            spread(&[90.0, 95.0, 99.0], 10.0, 0.0, 100.0),
            [80.0, 90.0, 100.0]
        );
        assert_eq!(spread(&[-5.0], 10.0, 0.0, 100.0), [0.0]);
    }
}
