//! Passes that are recorded when their shape comes again, and repeated from then on.

use std::collections::HashMap;
use std::sync::Arc;

use crate::driver::{Driver, Recording};
use crate::error::{Error, in_op};
use crate::tables::Shape;

/// Shapes that are kept at the same time; beyond them all begin anew.
const MOST_SHAPES: usize = 128;

/// Records of one kind of pass, by shape.
#[derive(Default)]
pub struct Recorded {
    shapes: HashMap<Shape, Record>,
}

enum Record {
    /// Ran once, which chose the algorithms of its products.
    Seen,
    /// To be repeated. The driver outlives the recording: fields drop in order.
    Ready(
        Box<dyn Recording>,
        #[expect(dead_code, reason = "kept alive")] Arc<dyn Driver>,
    ),
}

impl Recorded {
    /// Whether a pass of this shape is repeated from its record.
    pub(crate) fn repeats(&self, shape: Shape) -> bool {
        matches!(self.shapes.get(&shape), Some(Record::Ready(..)))
    }

    /// Runs a pass of this shape, whose tables are on the device, or repeats its record.
    pub(crate) fn run<E: From<volley_ops::Error>>(
        &mut self,
        driver: &Arc<dyn Driver>,
        shape: Shape,
        run: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let op = "recorded";
        match self.shapes.get(&shape) {
            Some(Record::Ready(recording, _)) => Ok(recording.replay().map_err(in_op(op))?),
            Some(Record::Seen) => {
                let mut failure = None;
                let recording = driver.record(&mut || {
                    run().map_err(|error| {
                        failure = Some(error);
                        let message = "an operation failed".to_string();
                        Error::Call { call: op, message }
                    })
                });
                if let Some(error) = failure {
                    return Err(error);
                }
                let recording = recording.map_err(in_op(op))?;
                recording.replay().map_err(in_op(op))?;
                let ready = Record::Ready(recording, Arc::clone(driver));
                self.shapes.insert(shape, ready);
                Ok(())
            }
            None => {
                run()?;
                if self.shapes.len() >= MOST_SHAPES {
                    self.shapes.clear();
                }
                self.shapes.insert(shape, Record::Seen);
                Ok(())
            }
        }
    }
}
