//! Pictures of records, as SVG and PNG.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::record;
use crate::args::values::new_file;
use crate::error::Result;

/// Pixels of a PNG for one unit of its SVG.
const SCALE: f32 = 2.0;

/// Where a picture goes.
#[derive(Args, Clone, Debug)]
pub struct PictureArgs {
    /// Where to write a picture of it as SVG.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub svg: Option<PathBuf>,
    /// The same as PNG.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub png: Option<PathBuf>,
}

impl PictureArgs {
    /// Writes the files that were asked for.
    pub fn write(&self, picture: impl FnOnce() -> String) -> Result<()> {
        if self.svg.is_none() && self.png.is_none() {
            return Ok(());
        }
        let svg = picture();
        if let Some(path) = &self.svg {
            record::write_file(path, svg.as_bytes())?;
        }
        match &self.png {
            Some(path) => record::write_file(path, &png(&svg)),
            None => Ok(()),
        }
    }
}

/// An SVG of ours as PNG. Its letters come with the program: a server need not have fonts.
fn png(svg: &str) -> Vec<u8> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let options = Options {
        fontdb: Arc::new(fonts),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).expect("our own SVG is one: this is a bug");
    let [width, height] =
        [tree.size().width(), tree.size().height()].map(|units| (units * SCALE).ceil() as u32);
    let mut pixels = Pixmap::new(width, height).expect("a picture has a size: this is a bug");
    let scale = Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels
        .encode_png()
        .expect("pixels in memory are encoded: this is a bug")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::svg::{Group, bars};
    use super::*;

    /// Dark pixels of a picture whose only bar has this name and height.
    fn drawn(name: &str, height: f64) -> (Pixmap, usize) {
        let groups = [Group {
            name: name.into(),
            bars: vec![height],
        }];
        let svg = bars("", "", &[String::new()], &groups);
        let pixels = Pixmap::decode_png(&png(&svg)).unwrap();
        let is_dark = |p: &&resvg::tiny_skia::PremultipliedColorU8| p.red() < 100;
        let dark = pixels.pixels().iter().filter(is_dark).count();
        (pixels, dark)
    }

    #[test]
    fn a_png_shows_bars_and_letters() {
        let (pixels, unnamed) = drawn("", 1.0);
        // A bar as high as the axis: 10 by 260 units of its colour, two pixels to a unit.
        let grey = |p: &&resvg::tiny_skia::PremultipliedColorU8| {
            (p.red(), p.green(), p.blue()) == (0x9a, 0xa0, 0xa6)
        };
        let bar = pixels.pixels().iter().filter(grey).count();
        assert!((20 * 515..=20 * 545).contains(&bar), "{bar}");
        let (_, named) = drawn("MMMM", 1.0);
        assert!(named > unnamed + 200, "{named}, without a name {unnamed}");
    }
}
