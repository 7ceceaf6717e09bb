use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use volley_ops::{Dtype, MatrixData, Ops, Origin};

use crate::checkpoint::{Checkpoint, Tensor};
use crate::error::Problem;
use crate::manifest::Spec;
use crate::{Error, Result};

/// A checkpoint's tensors by the name they have in the manifest. Reading a tensor claims it.
pub(crate) struct Weights<'a> {
    place: &'a str,
    tensors: BTreeMap<String, Tensor<'a>>,
    claimed: RefCell<BTreeSet<String>>,
}

/// A matrix `[out, input]`, packed from rows of several tensors; read when it is made.
#[derive(Clone)]
pub(crate) struct Matrix<'a>(MatrixData<'a>);

impl Matrix<'_> {
    pub(crate) fn weight<O: Ops>(&self, ops: &O) -> Result<O::Weight> {
        Ok(ops.load(&self.0)?)
    }

    /// The rows of both, `below` last.
    pub(crate) fn stack(mut self, below: Self) -> Self {
        self.0.out += below.0.out;
        if let (Origin::Parts(all), Origin::Parts(more)) = (&mut self.0.origin, below.0.origin) {
            all.extend(more);
        }
        self
    }

    pub(crate) fn buffer<O: Ops>(&self, ops: &O, dtype: Dtype) -> Result<O::Buf> {
        let (out, input) = (self.0.out, self.0.input);
        Ok(ops.upload(&self.0.values(), out, input, dtype)?)
    }
}

/// Name of a target's tensor without the prefixes of multimodal exports; `None`: vision, skipped.
pub(crate) fn target_name(name: &str) -> Option<String> {
    let plain = name.strip_prefix("language_model.").unwrap_or(name);
    if plain.starts_with("model.visual.") || plain.starts_with("visual.") {
        return None;
    }
    Some(match plain.strip_prefix("model.language_model.") {
        Some(rest) => format!("model.{rest}"),
        None => plain.to_string(),
    })
}

/// Name of a drafter's tensor without the prefix that some exports have.
pub(crate) fn drafter_name(name: &str) -> Option<String> {
    Some(name.strip_prefix("model.").unwrap_or(name).to_string())
}

impl<'a> Weights<'a> {
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        name: fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let mut tensors: BTreeMap<String, Tensor> = BTreeMap::new();
        for tensor in checkpoint.tensors() {
            let Some(name) = name(tensor.name()) else {
                continue;
            };
            if let Some(first) = tensors.get(&name) {
                return Err(Error::Duplicate {
                    tensor: name,
                    first: format!("{} as {}", first.file(), first.name()),
                    second: format!("{} as {}", tensor.file(), tensor.name()),
                });
            }
            tensors.insert(name, tensor);
        }
        Ok(Self {
            place: checkpoint.place(),
            tensors,
            claimed: RefCell::default(),
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Tensor<'a>> {
        self.tensors.get(name)
    }

    /// Whether any tensor has this prefix.
    pub(crate) fn has_prefix(&self, prefix: &str) -> bool {
        self.tensors.keys().any(|name| name.starts_with(prefix))
    }

    /// All that is missing, unknown, of another shape or no float.
    pub(crate) fn problems(&self, specs: &[Spec]) -> Vec<Problem> {
        let mut known = BTreeSet::new();
        let mut problems = Vec::new();
        for spec in specs {
            known.insert(spec.name.as_str());
            let Some(tensor) = self.get(&spec.name) else {
                if !spec.optional {
                    problems.push(Problem::Missing {
                        tensor: spec.name.clone(),
                        shape: spec.shape.clone(),
                        place: self.place.to_string(),
                    });
                }
                continue;
            };
            let (name, file) = (tensor.name().to_string(), tensor.file().to_string());
            if tensor.shape() != spec.shape {
                problems.push(Problem::Shape {
                    tensor: name,
                    expected: spec.shape.clone(),
                    found: tensor.shape().to_vec(),
                    file,
                });
            } else if !tensor.is_float() {
                problems.push(Problem::Dtype {
                    tensor: name,
                    shape: tensor.shape().to_vec(),
                    found: format!("{:?}", tensor.dtype()),
                    file,
                });
            }
        }
        let unknown = |(name, _): &(&String, &Tensor)| !known.contains(name.as_str());
        problems.extend(
            self.tensors
                .iter()
                .filter(unknown)
                .map(|(_, tensor)| Problem::Unknown {
                    tensor: tensor.name().to_string(),
                    shape: tensor.shape().to_vec(),
                    file: tensor.file().to_string(),
                }),
        );
        problems
    }

    /// [`Weights::problems`] as an error.
    pub(crate) fn check(&self, specs: &[Spec]) -> Result<()> {
        match self.problems(specs) {
            problems if problems.is_empty() => Ok(()),
            problems => Err(Error::Tensors(problems)),
        }
    }

    /// Asserts that each tensor of `specs` has been read: a loader that forgets one is a bug.
    pub(crate) fn finish(&self, specs: &[Spec]) {
        let claimed = self.claimed.borrow();
        let forgotten = |spec: &&Spec| !spec.optional && !claimed.contains(&spec.name);
        if let Some(spec) = specs.iter().find(forgotten) {
            panic!("tensor {} is never read: this is a bug", spec.name);
        }
    }

    /// The tensors below `prefix`.
    pub(crate) fn scope(&self, prefix: impl Into<String>) -> Scope<'_, 'a> {
        Scope {
            weights: self,
            prefix: prefix.into(),
        }
    }
}

/// The tensors below a prefix, after [`Weights::check`].
pub(crate) struct Scope<'w, 'a> {
    weights: &'w Weights<'a>,
    prefix: String,
}

impl<'a> Scope<'_, 'a> {
    /// The tensor, claimed. A matrix claimed twice would be one used in two places.
    fn claim(&self, name: &str) -> Tensor<'a> {
        let name = format!("{}{name}", self.prefix);
        let tensor = *self
            .weights
            .get(&name)
            .expect("checked tensors are there: this is a bug");
        let first = self.weights.claimed.borrow_mut().insert(name);
        assert!(
            first,
            "tensor {} is read twice: this is a bug",
            tensor.name()
        );
        tensor
    }

    /// All values of a tensor.
    pub(crate) fn values(&self, name: &str) -> Vec<f32> {
        let tensor = self.claim(name);
        let mut values = Vec::with_capacity(tensor.len());
        tensor.append(0..tensor.len(), &mut values);
        values
    }

    /// A norm weight, `[1, width]`.
    pub(crate) fn norm<O: Ops>(&self, ops: &O, name: &str) -> Result<O::Buf> {
        self.vector(ops, name, 0..self.len(name), Dtype::Activation)
    }

    /// Part of a small tensor, `[1, len]`.
    pub(crate) fn vector<O: Ops>(
        &self,
        ops: &O,
        name: &str,
        range: Range<usize>,
        dtype: Dtype,
    ) -> Result<O::Buf> {
        let values = &self.values(name)[range];
        Ok(ops.upload(values, 1, values.len(), dtype)?)
    }

    fn len(&self, name: &str) -> usize {
        let name = format!("{}{name}", self.prefix);
        self.weights.get(&name).map_or(0, Tensor::len)
    }

    /// A whole matrix.
    pub(crate) fn matrix(&self, name: &str) -> Matrix<'a> {
        let rows = 0..self.first_dim(name);
        self.rows(&[(name, std::slice::from_ref(&rows))])
    }

    fn first_dim(&self, name: &str) -> usize {
        let name = format!("{}{name}", self.prefix);
        self.weights
            .get(&name)
            .map_or(0, |tensor| tensor.shape()[0])
    }

    /// Rows of one or more tensors of the same width, one below the other. Nothing else is read.
    pub(crate) fn rows(&self, parts: &[(&str, &[Range<usize>])]) -> Matrix<'a> {
        let (mut from, mut out, mut width) = (Vec::new(), 0, 0);
        let mut made_up = None;
        for (name, ranges) in parts {
            let tensor = self.claim(name);
            width = tensor.len() / tensor.shape()[0].max(1);
            made_up = tensor.noise(width);
            for range in *ranges {
                from.extend(tensor.part(range.start * width, range.len(), width));
                out += range.len();
            }
        }
        Matrix(MatrixData {
            out,
            input: width,
            origin: made_up.unwrap_or(Origin::Parts(from)),
        })
    }

    /// Columns of a matrix.
    pub(crate) fn columns(&self, name: &str, range: Range<usize>) -> Matrix<'a> {
        let tensor = self.claim(name);
        let (out, width) = (tensor.shape()[0], tensor.shape()[1]);
        let part = tensor.part(range.start, out, width);
        Matrix(MatrixData {
            out,
            input: range.len(),
            origin: tensor
                .noise(width)
                .unwrap_or_else(|| Origin::Parts(part.into_iter().collect())),
        })
    }
}
