use crate::noise::Stream;
use crate::sample::{sample, sample_from};
use crate::{
    Distribution, Error, History, Logits, Proposal, Rule, SamplingParams, distribution_of,
};

/// Draft for `position` from a row of the drafter's logits, filtered as the target's are: the likeliest
/// token at temperature 0, else a sample. Under [`Rule::Match`] it shares the target's noise, so
/// that both often choose the same token; under [`Rule::Residual`] it has noise of its own and
/// comes with its distribution.
///
/// # Errors
/// As [`distribution_of`].
pub fn draft(
    logits: &mut dyn Logits,
    row: usize,
    params: &SamplingParams,
    history: &History,
    allowed: usize,
    position: usize,
    rule: Rule,
) -> Result<(u32, Option<Distribution>), Error> {
    let distribution = distribution_of(logits, row, params, history, allowed)?;
    match rule {
        Rule::Match => Ok((sample(&distribution, params.seed, position)?, None)),
        Rule::Residual => {
            let token = sample_from(&distribution, params.seed, position, Stream::Draft)?;
            Ok((token, Some(distribution)))
        }
    }
}

/// Chain of drafts, one for each of the first `rows` rows, the first for `position`; every draft counts as
/// history of the next. `history` ends with the anchor and is left as it was.
///
/// # Errors
/// As [`draft`].
pub fn draft_chain(
    logits: &mut dyn Logits,
    rows: usize,
    params: &SamplingParams,
    history: &mut History,
    allowed: usize,
    position: usize,
    rule: Rule,
) -> Result<Proposal, Error> {
    let committed = history.output().len();
    let drafts = (0..rows)
        .map(|row| {
            let at = position + row;
            let (token, distribution) = draft(logits, row, params, history, allowed, at, rule)?;
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
