use crate::candidates::{among_candidates, others_only_fall};
use crate::{
    Allowed, Choice, Distribution, Error, History, Logits, Proposal, Row, Rule, SamplingParams,
    distribution_of, sample,
};

/// Draft for `position` from a row of the drafter's logits, filtered as the target's are: the likeliest
/// token at temperature 0, else a sample. It shares the target's noise, so that both often choose the same
/// token. Under [`Rule::Residual`] it comes with its distribution, which leaves out all but the candidates
/// where these do not decide it.
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
    let choice = Choice {
        params,
        history,
        allowed,
        next: &Allowed::All,
        position,
    };
    if rule == Rule::Match {
        let distribution = distribution_of(logits, row, &choice)?;
        return Ok((sample(&distribution, params.seed, position)?, None));
    }
    let distribution = match foreseen(logits, row, &choice)? {
        Foreseen { others: true, .. } => distribution_of(logits, row, &choice)?,
        Foreseen { distribution, .. } => distribution,
    };
    let token = sample(&distribution, params.seed, position)?;
    Ok((token, Some(distribution)))
}

/// What a row lets foresee.
pub(crate) struct Foreseen {
    /// What the token is sampled from, or what the candidates tell of it, as if there were no other tokens.
    pub distribution: Distribution,
    /// Whether it is all of that.
    pub whole: bool,
    /// Whether bias and penalties raise tokens that are left out.
    pub others: bool,
}

/// Asks for no draw unless nothing is known of a row.
pub(crate) fn foreseen(
    logits: &mut dyn Logits,
    row: usize,
    choice: &Choice<'_>,
) -> Result<Foreseen, Error> {
    let (params, history) = (choice.params, choice.history);
    if let Row::Likeliest(candidates) = logits.row(row)?
        && choice.among(&candidates)?.is_none()
        && let Some(distribution) = among_candidates(&candidates, params, history)
    {
        return Ok(Foreseen {
            distribution,
            whole: false,
            others: !others_only_fall(candidates.ids, params),
        });
    }
    Ok(Foreseen {
        distribution: distribution_of(logits, row, choice)?,
        whole: true,
        others: false,
    })
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
