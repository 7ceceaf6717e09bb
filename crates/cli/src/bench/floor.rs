//! What a step has to read, whatever computes it.

use volley_engine::MeterCase;
use volley_model::{DrafterConfig, Result, Shard, Traffic};

/// Traffic of the models that take part in a step, on one rank.
pub struct Floor {
    /// The target's.
    pub target: Traffic,
    /// The drafter's.
    pub drafter: Option<Drafter>,
    /// The MTP head's, of one pass.
    pub head: Option<Traffic>,
}

/// Traffic of a drafter.
pub struct Drafter {
    traffic: Traffic,
    /// How much of the context each layer sees; all of it when `None`.
    windows: Vec<Option<usize>>,
}

impl Drafter {
    /// What one rank reads of it.
    pub fn of(config: &DrafterConfig, shard: Shard) -> Result<Self> {
        Ok(Self {
            traffic: config.traffic(shard)?,
            windows: config.masks.iter().map(|mask| mask.window).collect(),
        })
    }
}

impl Floor {
    /// Bytes of a step: weights once; of every sequence its keys and values, and its states read
    /// by the pass, read and written by the commit.
    pub fn bytes(&self, case: MeterCase) -> usize {
        let Traffic {
            weights,
            head,
            kv_per_token,
            states_per_sequence,
        } = self.target;
        let own = case.context * kv_per_token + 3 * states_per_sequence;
        let mut bytes = weights + head + case.sequences * own;
        if let Some(Drafter { traffic, windows }) = &self.drafter {
            let per_layer = traffic.kv_per_token / windows.len().max(1);
            let seen = windows
                .iter()
                .map(|w| w.unwrap_or(usize::MAX).min(case.context));
            bytes += traffic.weights + head + case.sequences * per_layer * seen.sum::<usize>();
        }
        if let Some(mtp) = &self.head {
            // Every draft comes from a pass of the head, the first one from that over what was
            // committed before, and of the output head.
            let context = case.sequences * case.context * mtp.kv_per_token;
            bytes += case.drafts * (mtp.weights + head + context);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use volley_engine::MeterSource;
    use volley_model::TargetConfig;

    use super::*;

    /// By hand, from the sizes of the 27B: 24.0 GB of layers, 2.5 GB of head, drafter and head.
    #[test]
    fn a_step_of_the_27b_reads_what_it_must() {
        let card = crate::cards::find("qwen3.6-27b").unwrap();
        let config = TargetConfig::read(&card.target().unwrap()).unwrap();
        let checkpoint = card.drafter(&config).unwrap();
        let drafter = DrafterConfig::read(&checkpoint, Some(&config)).unwrap();
        let target = config.traffic(Shard::WHOLE).unwrap();
        assert_eq!(target.head, 248_320 * 5120 * 2);
        // All parameters but embedding and head.
        let layers = 26_895_998_464 - 2 * 248_320 * 5120;
        assert_eq!(target.weights, 2 * layers);
        assert_eq!(target.kv_per_token, 16 * 2 * 1024 * 2);
        let floor = Floor {
            target,
            drafter: Some(Drafter::of(&drafter, Shard::WHOLE).unwrap()),
            head: None,
        };
        let case = |context| MeterCase {
            sequences: 1,
            context,
            drafts: 15,
            source: MeterSource::Chain,
            warm_steps: 0,
            steps: 1,
        };
        let far = floor.bytes(case(16_000)) - floor.bytes(case(8_000));
        // Beyond the window only one drafter layer sees more.
        assert_eq!(far, 8_000 * (target.kv_per_token + 2 * 1024 * 2));
        // The MTP head has 424.7 million parameters and one layer of keys and values.
        let mtp = config.mtp_traffic(Shard::WHOLE).unwrap();
        assert_eq!(mtp.weights, 2 * 424_699_392);
        assert_eq!(mtp.kv_per_token, 2 * 1024 * 2);
        let floor = |head| Floor {
            target,
            drafter: None,
            head,
        };
        let three = MeterCase {
            drafts: 3,
            source: MeterSource::Mtp,
            ..case(1000)
        };
        let more = floor(Some(mtp)).bytes(three) - floor(None).bytes(three);
        assert_eq!(
            more,
            3 * (mtp.weights + target.head + 1000 * mtp.kv_per_token)
        );
    }
}
