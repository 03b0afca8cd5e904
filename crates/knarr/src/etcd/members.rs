//! Adds etcd members. A new member joins as a learner, and votes once it has caught up: adding one never makes
//! the cluster lose its majority.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use store::etcd::client::{Client, Member, Options};

use super::Config;
use super::certificates::Files;

const TRY_AGAIN: Duration = Duration::from_millis(300);
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
const ASK_NEXT: Duration = Duration::from_millis(200);
const REMOVED_TIMEOUT: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How a member finds the others at its first start.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// `name=url,name=url`
    pub initial_cluster: String,
    pub joins: bool,
}

impl Place {
    pub fn first(name: &str, peer_url: &str) -> Place {
        Place { initial_cluster: format!("{name}={peer_url}"), joins: false }
    }

    /// From the members' names and the addresses their peers use.
    fn among<'a>(members: impl Iterator<Item = (&'a str, &'a [String])>, name: &str, peer_url: &str) -> Place {
        let mut list: Vec<String> = Vec::new();
        for (member, urls) in members {
            // One that was added and has not started yet has no name: it is this one, or nobody can use it.
            let of_this = urls.iter().any(|url| url == peer_url);
            let known_as = if of_this { name } else { member };
            if !known_as.is_empty() {
                list.extend(urls.iter().map(|url| format!("{known_as}={url}")));
            }
        }
        Place { initial_cluster: list.join(","), joins: true }
    }
}

/// Tells the others that this machine is one of them, and how it finds them. What an interrupted start did counts.
pub async fn add(config: &Config, files: &Files) -> anyhow::Result<Place> {
    let peer_url = config.peer_url();
    // Two that join at once are in each other's way until the first has caught up.
    let until = tokio::time::Instant::now() + Duration::from_secs(90);
    loop {
        match try_add(config, files, &peer_url).await {
            Ok(members) => return Ok(Place::among(named(&members), &config.name, &peer_url)),
            Err(error) if tokio::time::Instant::now() > until => return Err(error),
            Err(error) => {
                tracing::info!(error = format!("{error:#}"), "cannot join etcd cluster yet; retrying");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// The members, this machine among them.
async fn try_add(config: &Config, files: &Files, peer_url: &str) -> anyhow::Result<Vec<Member>> {
    let (mut client, members) = serving(&config.others, files).await?;
    if let Some(known) = members.iter().find(|member| member.peer_urls.iter().any(|url| url == peer_url)) {
        // Nobody has started it yet: an interrupted start added it.
        if known.name.is_empty() {
            return Ok(members);
        }
        // It has lost its data since, and with them what it promised the others; it cannot go on as the same.
        client.remove_member(known.id).await.context("remove old etcd member of this machine")?;
        tracing::warn!(member = config.name, "removed etcd member of this machine whose data were lost");
    }
    client.add_learner(peer_url).await.context("add etcd member")
}

/// Who belongs to it, as the first of these that answers says.
pub async fn list(endpoints: &[String], files: &Files) -> anyhow::Result<Vec<Member>> {
    serving(endpoints, files).await.map(|(_, members)| members)
}

/// The first of these that answers, and whom it knows. They are asked one after the other, but none waits long for the one
/// before it: a member takes connections before it serves, which it does once there are enough of them.
async fn serving(endpoints: &[String], files: &Files) -> anyhow::Result<(Client, Vec<Member>)> {
    let asked = |(place, endpoint): (u32, &String)| {
        let endpoint = endpoint.clone();
        async move {
            tokio::time::sleep(ASK_NEXT * place).await;
            let listed = async {
                let mut client = connect(std::slice::from_ref(&endpoint), files)?;
                let members = client.members().await?;
                anyhow::Ok((client, members))
            };
            match tokio::time::timeout(LIST_TIMEOUT, listed).await {
                Ok(listed) => listed.with_context(|| format!("list etcd members at {endpoint}")),
                Err(_) => Err(anyhow::anyhow!("no answer from {endpoint} to list etcd members")),
            }
        }
    };
    let mut asking: FuturesUnordered<_> = (0..).zip(endpoints).map(asked).collect();
    let mut last = anyhow::anyhow!("no etcd endpoint is known");
    while let Some(answer) = asking.next().await {
        match answer {
            Ok(found) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether the others say that this machine is none of them, or no longer. Where all start at once nobody says anything, and
/// nobody would if everybody waited; a member that was removed then hears so from the others when it has started.
pub async fn was_removed(config: &Config, files: &Files) -> bool {
    match tokio::time::timeout(REMOVED_TIMEOUT, list(&config.others, files)).await {
        Ok(Ok(members)) => {
            let own = |member: &Member| member.name == config.name || member.peer_urls.contains(&config.peer_url());
            !members.iter().any(own)
        }
        _ => false,
    }
}

/// Where the members that have started are reached, this machine's own first.
pub fn endpoints(members: &[Member], own: &str) -> Vec<String> {
    let others = members.iter().flat_map(|member| &member.client_urls).filter(|url| *url != own).cloned();
    std::iter::once(own.to_owned()).chain(others).collect()
}

fn named(members: &[Member]) -> impl Iterator<Item = (&str, &[String])> {
    members.iter().map(|member| (member.name.as_str(), member.peer_urls.as_slice()))
}

/// Until this machine's member votes.
pub async fn until_member(config: &Config, files: &Files) {
    let own = [config.client_url()];
    // A member that only listens answers nothing; the others can tell, and must be asked to let it vote.
    tokio::select! {
        () = until_promoted(config, &own, files) => {}
        () = until_promoted(config, &config.others, files), if !config.others.is_empty() => {}
    }
}

async fn until_promoted(config: &Config, asked: &[String], files: &Files) {
    loop {
        match promote(config, asked, files).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(error = format!("{error:#}"), "cannot promote etcd learner yet"),
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

async fn promote(config: &Config, asked: &[String], files: &Files) -> anyhow::Result<bool> {
    let (mut client, members) = serving(asked, files).await?;
    let peer_url = config.peer_url();
    let Some(own) = members.iter().find(|member| member.peer_urls.contains(&peer_url)) else {
        bail!("this machine is not an etcd member");
    };
    if own.name.is_empty() {
        return Ok(false);
    }
    if own.is_learner {
        client.promote_member(own.id).await?;
        tracing::info!(member = config.name, "promoted etcd learner to voting member");
    }
    Ok(true)
}

pub fn connect(endpoints: &[String], files: &Files) -> anyhow::Result<Client> {
    let options = Options {
        ca: Some(files.authority.clone().into()),
        cert: Some(files.pair.certificate_pem.clone().into()),
        key: Some(files.pair.key_pem.clone().into()),
        connect_timeout: Some(REQUEST_TIMEOUT),
        timeout: Some(REQUEST_TIMEOUT),
        ..Options::default()
    };
    Client::new(endpoints, &options).with_context(|| format!("connect to etcd at {}", endpoints.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_member_is_alone() {
        let place = Place::first("a", "https://10.0.0.1:2380");
        assert_eq!(place, Place { initial_cluster: "a=https://10.0.0.1:2380".into(), joins: false });
    }

    #[test]
    fn who_was_added_but_not_started_is_this_one() {
        let urls = ["https://10.0.0.1:2380".to_owned(), "https://10.0.0.2:2380".to_owned()];
        let members = [("a", &urls[..1]), ("", &urls[1..])];
        let place = Place::among(members.into_iter(), "b", "https://10.0.0.2:2380");
        assert_eq!(place.initial_cluster, "a=https://10.0.0.1:2380,b=https://10.0.0.2:2380");
        assert!(place.joins);
    }
}
