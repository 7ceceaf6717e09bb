//! What a rank will hold on its GPU, worked out before anything is loaded.

use std::fmt;

use crate::EngineError;

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct GpuReport {
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// CUDA version that the driver supports, major and minor.
    pub driver_cuda: (i32, i32),
    /// Memory, bytes.
    pub total_bytes: usize,
    /// Memory that is free, bytes.
    pub free_bytes: usize,
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Measured speed of a kernel that reads, bytes per second.
    pub read_bandwidth: f64,
    /// Measured speed of a copy on the device, bytes read and written per second.
    pub copy_bandwidth: f64,
}

/// How the GPUs of this machine reach each other, measured.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LinkReport {
    /// Bytes per second of copies from one GPU to another; none where they cannot reach each other.
    pub speeds: Vec<LinkSpeed>,
    /// How sums over all of them would go, and the times that the choice rests on.
    pub sums: String,
}

/// From one GPU to another.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LinkSpeed {
    /// The GPU that sends.
    pub from: usize,
    /// The GPU that receives.
    pub to: usize,
    /// Bytes per second.
    pub speed: Option<f64>,
}

/// Memory of one rank, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    /// Weights of the target.
    pub weights: usize,
    /// Weights of the drafter.
    pub drafter: usize,
    /// Recurrent and convolution states of all slots.
    pub states: usize,
    /// Buffers of the passes, logits, tables, recorded passes.
    pub workspace: usize,
    /// Keys and values of one cache block, target and drafter.
    pub block: usize,
    /// Tokens of a block.
    pub block_tokens: usize,
    /// Cache blocks.
    pub blocks: usize,
    /// Of these, what a sequence of full length takes.
    pub sequence_blocks: usize,
    /// What may be used.
    pub available: usize,
}

impl MemoryPlan {
    /// All but keys and values.
    pub fn fixed(&self) -> usize {
        self.weights + self.drafter + self.states + self.workspace
    }

    /// Sequences of full length that the cache holds at once.
    pub fn sequences(&self) -> usize {
        self.blocks / self.sequence_blocks.max(1)
    }

    /// Gives the cache all memory that is left, or refuses where `least` blocks do not fit.
    pub(crate) fn fill(mut self, least: usize) -> Result<Self, EngineError> {
        let room = self.available.saturating_sub(self.fixed());
        self.blocks = room / self.block.max(1);
        if self.blocks >= least && self.fixed() <= self.available {
            return Ok(self);
        }
        let needed = self.fixed() + least * self.block;
        Err(EngineError::Memory {
            needed: gigabytes(needed),
            plan: Self {
                blocks: least,
                ..self
            }
            .to_string(),
        })
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights {}, drafter {}, states {}, workspace {}, keys and values {} for {} tokens; \
             available {}",
            gigabytes(self.weights),
            gigabytes(self.drafter),
            gigabytes(self.states),
            gigabytes(self.workspace),
            gigabytes(self.blocks * self.block),
            self.blocks * self.block_tokens,
            gigabytes(self.available),
        )
    }
}

pub(crate) fn gigabytes(bytes: usize) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: MemoryPlan = MemoryPlan {
        weights: 50_000_000_000,
        drafter: 3_000_000_000,
        states: 1_000_000_000,
        workspace: 2_000_000_000,
        block: 1_000_000,
        block_tokens: 16,
        blocks: 0,
        sequence_blocks: 100,
        available: 60_000_000_000,
    };

    #[test]
    fn the_cache_gets_what_is_left() {
        let plan = PLAN.fill(2000).unwrap();
        assert_eq!(plan.blocks, 4000);
        assert!(plan.to_string().contains("4.00 GB for 64000 tokens"));
    }

    #[test]
    fn too_little_memory_is_told_with_the_numbers() {
        for (available, least) in [(60_000_000_000, 4001), (55_000_000_000, 0)] {
            let plan = MemoryPlan { available, ..PLAN };
            let message = plan.fill(least).unwrap_err().to_string();
            assert!(message.contains("weights 50.00 GB"), "{message}");
            assert!(message.contains("needs"), "{message}");
        }
    }
}
