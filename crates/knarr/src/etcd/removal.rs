//! Members that go: which may, and how. None goes where the rest would have no majority.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use store::etcd::client::Member;

use super::certificates::Files;
use super::members;

const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Another leader is chosen in less.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// etcd asks for five seconds of quiet.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(15);
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// A member as the others see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub id: u64,
    /// Empty where it was added and never started.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub is_learner: bool,
    pub leads: bool,
    pub answers: bool,
}

impl View {
    pub fn role(&self) -> &'static str {
        match (self.name.is_empty(), self.is_learner, self.leads) {
            (true, ..) => "never started",
            (_, true, _) => "learner",
            (_, _, true) => "leader",
            (_, _, false) => "voter",
        }
    }
}

/// All members, and which of them answer.
pub async fn look(endpoints: &[String], files: &Files) -> anyhow::Result<Vec<View>> {
    let members = members::list(endpoints, files).await?;
    let views = members.iter().map(|member| view(member, files));
    Ok(futures::future::join_all(views).await)
}

async fn view(member: &Member, files: &Files) -> View {
    let asked = async {
        let mut client = members::connect(&member.client_urls, files)?;
        anyhow::Ok(client.status().await?)
    };
    let status = if member.client_urls.is_empty() {
        None
    } else {
        tokio::time::timeout(STATUS_TIMEOUT, asked).await.ok().and_then(Result::ok)
    };
    View {
        id: member.id,
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        client_urls: member.client_urls.clone(),
        is_learner: member.is_learner,
        leads: status.as_ref().is_some_and(|status| status.leader == member.id),
        // Who knows no leader is in touch with nobody.
        answers: status.is_some_and(|status| status.leader != 0),
    }
}

/// Says why a member has to stay.
pub fn may_remove(members: &[View], id: u64) -> anyhow::Result<()> {
    let Some(leaving) = members.iter().find(|member| member.id == id) else { return Ok(()) };
    if leaving.is_learner {
        return Ok(());
    }
    let left: Vec<&View> = members.iter().filter(|member| !member.is_learner && member.id != id).collect();
    if left.is_empty() {
        bail!("it is the only member of etcd");
    }
    let (needed, answer) = (left.len() / 2 + 1, left.iter().filter(|member| member.answers).count());
    if answer < needed {
        bail!("{answer} of the {} other etcd members answer, but a quorum needs {needed}", left.len());
    }
    Ok(())
}

/// Takes a member out. One that leads hands over first.
pub async fn remove(members: &[View], id: u64, files: &Files) -> anyhow::Result<()> {
    if let Err(why) = may_remove(members, id) {
        bail!("cannot remove etcd member: {why}");
    }
    let Some(leaving) = members.iter().find(|member| member.id == id) else { return Ok(()) };
    let others: Vec<&View> =
        members.iter().filter(|member| member.id != id && member.answers && !member.is_learner).collect();
    if let (true, Some(next)) = (leaving.leads, others.first()) {
        let mut client = members::connect(&leaving.client_urls, files)?;
        let moved = tokio::time::timeout(HANDOVER_TIMEOUT, client.move_leader(next.id)).await;
        moved.context("etcd leader transfer timed out")?.context("transfer etcd leadership")?;
    }
    let asked = others.first().context("no other etcd member answers")?;
    let mut client = members::connect(&asked.client_urls, files)?;
    let until = tokio::time::Instant::now() + SETTLE_TIMEOUT;
    while let Err(error) = client.remove_member(id).await {
        // etcd wants to have been in touch with all for some seconds, which after a change it has not.
        let is_unsettled = error.to_string().contains("unhealthy cluster");
        if !is_unsettled || tokio::time::Instant::now() > until {
            return Err(error).context("remove etcd member");
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    tracing::info!(member = leaving.name, id = format!("{id:x}"), "removed etcd member");
    Ok(())
}

/// Learners that never came or went silent: while one is there etcd takes no other.
#[derive(Default)]
pub struct Stalled(BTreeMap<u64, tokio::time::Instant>);

impl Stalled {
    /// Those that have not answered for so long.
    pub fn overdue(&mut self, members: &[View], now: tokio::time::Instant, patience: Duration) -> Vec<u64> {
        let silent: Vec<u64> = members.iter().filter(|one| one.is_learner && !one.answers).map(|one| one.id).collect();
        self.0.retain(|id, _| silent.contains(id));
        silent.into_iter().filter(|id| now.duration_since(*self.0.entry(*id).or_insert(now)) >= patience).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Vec<View> {
        let one = |(index, letter): (usize, char)| View {
            id: index as u64,
            name: format!("m{index}"),
            answers: letter.is_ascii_uppercase(),
            is_learner: letter.eq_ignore_ascii_case(&'l'),
            ..View::default()
        };
        text.chars().enumerate().map(one).collect()
    }

    #[test]
    fn nobody_goes_where_the_rest_has_no_majority() {
        // V and L answer, v and l do not.
        for (text, leaving, may) in [
            ("VVV", 0, true),
            ("VVv", 2, true),
            ("VVv", 0, false),
            ("VV", 1, true),
            ("Vv", 0, false),
            ("Vv", 1, true),
            ("V", 0, false),
            ("VL", 0, false),
            ("VL", 1, true),
            ("Vl", 1, true),
            ("VVVvv", 3, true),
            ("VVVvv", 0, false),
            ("VVV", 7, true),
        ] {
            assert_eq!(may_remove(&members(text), leaving).is_ok(), may, "{text} without {leaving}");
        }
        let why = may_remove(&members("VVv"), 0).unwrap_err().to_string();
        assert_eq!(why, "1 of the 2 other etcd members answer, but a quorum needs 2");
    }

    #[test]
    fn a_learner_that_is_silent_for_long_is_overdue() {
        let (mut stalled, patience) = (Stalled::default(), Duration::from_secs(300));
        let now = tokio::time::Instant::now();
        assert!(stalled.overdue(&members("VVl"), now, patience).is_empty());
        assert!(stalled.overdue(&members("VVl"), now + patience / 2, patience).is_empty());
        assert_eq!(stalled.overdue(&members("VVl"), now + patience, patience), [2]);
        // One that came back has all its time again; voters are nobody's business here.
        assert!(stalled.overdue(&members("VvL"), now + patience, patience).is_empty());
        assert!(stalled.overdue(&members("Vvl"), now + patience * 2, patience).is_empty());
    }
}
