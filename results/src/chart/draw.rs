//! Draws a chart on a backend of `plotters`, SVG or bitmap.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::{Chart, Form, Series};

/// Colours that differ in lightness as well as in hue, on white.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x1b, 0x1b, 0x1b),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xb8, 0x86, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x7b, 0x3f, 0x00),
    RGBColor(0x6a, 0x3d, 0x9a),
    RGBColor(0x8a, 0xa8, 0x00),
    RGBColor(0xc2, 0x18, 0x5b),
    RGBColor(0x80, 0x80, 0x80),
];

/// Radius of the largest bubble in pixels.
const BUBBLE: f64 = 26.0;
/// Opacity of bubbles, which may lie upon each other.
const OPACITY: f64 = 0.55;
/// Pixels at the right for the names of the series.
const LEGEND: i32 = 230;

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Draws a chart over a whole area.
pub(super) fn chart<B: DrawingBackend>(area: &DrawingArea<B, Shift>, chart: &Chart) -> Drawn<B> {
    fonts();
    area.fill(&WHITE)?;
    let width = area.dim_in_pixel().0 as i32;
    let (plot, legend) = area.split_horizontally(width - LEGEND);

    let placed: Vec<(&Series, Vec<(f64, f64)>)> = chart
        .series
        .iter()
        .map(|series| {
            let points = series.points.iter();
            let points = points
                .filter_map(|(x, y)| Some((chart.x.scale.place(*x)?, chart.y.scale.place(*y)?)));
            (series, points.collect())
        })
        .collect();
    let all = || placed.iter().flat_map(|(_, points)| points);
    let mut context = ChartBuilder::on(&plot)
        .margin(12)
        .caption(&chart.title, (FAMILY, 18))
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            chart.x.scale.range(all().map(|(x, _)| *x)),
            chart.y.scale.range(all().map(|(_, y)| *y)),
        )?;
    context
        .configure_mesh()
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .label_style((FAMILY, 13))
        .axis_desc_style((FAMILY, 14))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(9)
        .y_labels(9)
        .x_label_formatter(&|place| chart.x.scale.words(*place))
        .y_label_formatter(&|place| chart.y.scale.words(*place))
        .draw()?;
    for (series, points) in &placed {
        let colour = COLOURS[series.rank % COLOURS.len()];
        match series.form {
            Form::Line => {
                context.draw_series(LineSeries::new(
                    points.iter().copied(),
                    colour.stroke_width(2),
                ))?;
                for point in points.iter().filter(|_| points.len() <= 12) {
                    context.draw_series([marker(*point, series.rank)])?;
                }
            }
            Form::Bubble(share) => {
                let radius = (BUBBLE * share.clamp(0.01, 1.0).sqrt()).round() as i32;
                let discs = points.iter();
                context.draw_series(
                    discs.map(|point| Circle::new(*point, radius, colour.mix(OPACITY).filled())),
                )?;
            }
        }
    }
    names(&legend, chart)
}

/// The names of the series, from the top.
fn names<B: DrawingBackend>(area: &DrawingArea<B, Shift>, chart: &Chart) -> Drawn<B> {
    for (index, series) in chart.series.iter().enumerate() {
        let y = 48 + 22 * index as i32;
        let colour = COLOURS[series.rank % COLOURS.len()];
        if series.form == Form::Line {
            area.draw(&PathElement::new([(0, y), (26, y)], colour.stroke_width(2)))?;
            area.draw(&marker((13, y), series.rank))?;
        } else {
            area.draw(&Circle::new((13, y), 8, colour.mix(OPACITY).filled()))?;
        }
        area.draw(&Text::new(
            series.name.clone(),
            (32, y - 7),
            (FAMILY, 13).into_font(),
        ))?;
    }
    Ok(())
}

/// A sign at a point: twelve colours alone are hard to tell apart.
fn marker<C: Clone + 'static, B: DrawingBackend>(
    point: C,
    rank: usize,
) -> DynElement<'static, B, C> {
    let style = COLOURS[rank % COLOURS.len()].filled();
    match rank % 3 {
        0 => Circle::new(point, 4, style).into_dyn(),
        1 => TriangleMarker::new(point, 5, style).into_dyn(),
        _ => Cross::new(point, 4, style.stroke_width(2)).into_dyn(),
    }
}

/// The family that the font is registered under.
const FAMILY: &str = "sans-serif";

/// Hands the drawing library the font, once.
fn fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The bytes are part of the program and a font: the result can only be success.
        let _ = register_font(FAMILY, FontStyle::Normal, dejavu::sans::regular());
    });
}
