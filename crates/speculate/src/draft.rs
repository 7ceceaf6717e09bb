use crate::noise::Stream;
use crate::sample::{sample, sample_from};
use crate::{Distribution, Error, History, Proposal, Rule, SamplingParams, distribution};

/// Draft for `position` from the drafter's logits, filtered as the target's are: the likeliest
/// token at temperature 0, else a sample. Under [`Rule::Match`] it shares the target's noise, so
/// that both often choose the same token; under [`Rule::Residual`] it has noise of its own and
/// comes with its distribution.
///
/// # Errors
/// As [`distribution`].
pub fn draft(
    logits: &[f32],
    params: &SamplingParams,
    history: &History,
    allowed: usize,
    position: usize,
    rule: Rule,
) -> Result<(u32, Option<Distribution>), Error> {
    let distribution = distribution(logits, params, history, allowed)?;
    match rule {
        Rule::Match => Ok((sample(&distribution, params.seed, position)?, None)),
        Rule::Residual => {
            let token = sample_from(&distribution, params.seed, position, Stream::Draft)?;
            Ok((token, Some(distribution)))
        }
    }
}

/// Chain of drafts, one for each row of logits, the first for `position`; every draft counts as
/// history of the next. `history` ends with the anchor and is left as it was.
///
/// # Errors
/// As [`draft`].
pub fn draft_chain<'a>(
    rows: impl IntoIterator<Item = &'a [f32]>,
    params: &SamplingParams,
    history: &mut History,
    allowed: usize,
    position: usize,
    rule: Rule,
) -> Result<Proposal, Error> {
    let committed = history.output().len();
    let drafts = (position..)
        .zip(rows)
        .map(|(position, logits)| {
            let (token, distribution) = draft(logits, params, history, allowed, position, rule)?;
            history.push(token);
            Ok((token, distribution))
        })
        .collect::<Result<Vec<_>, Error>>();
    history.truncate(committed);
    let (tokens, distributions): (_, Vec<Option<Distribution>>) = drafts?.into_iter().unzip();
    Ok(Proposal {
        tokens,
        distributions: distributions.into_iter().collect(),
        parents: None,
    })
}
