//! User and groups of a container's process: names and ids from the pod and the image, groups from the image's `/etc/group`.

use cri::v1;
use oci_spec::runtime::{User, UserBuilder};

use super::{build, invalid};

pub(super) fn user(
    security: &v1::LinuxContainerSecurityContext,
    image_user: &str,
    passwd: &str,
    group: &str,
) -> cri::Result<User> {
    let identity = identity(security, image_user, passwd, group)?;
    UserBuilder::default().uid(identity.uid).gid(identity.gid).additional_gids(identity.groups).build().map_err(build)
}

/// The numbers behind a container's user, as `status.containerStatuses[].user` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// The primary group is among them.
    pub groups: Vec<u32>,
}

pub fn identity(
    security: &v1::LinuxContainerSecurityContext,
    image_user: &str,
    passwd: &str,
    group: &str,
) -> cri::Result<Identity> {
    let (image_name, image_group) = match image_user.split_once(':') {
        Some((name, group)) => (name, Some(group).filter(|group| !group.is_empty())),
        None => (image_user, None),
    };
    let from_pod = match (&security.run_as_user, security.run_as_username.as_str()) {
        (_, name) if !name.is_empty() => Some(name.to_owned()),
        (Some(uid), _) => Some(uid.value.to_string()),
        (None, _) => None,
    };
    // A group in the image's USER belongs to the image's user, not to another that the pod names.
    let group_wanted = match (&security.run_as_group, &from_pod) {
        (Some(gid), _) => Some(gid.value.to_string()),
        (None, Some(_)) => None,
        (None, None) => image_group.map(str::to_owned),
    };
    let user_wanted = from_pod.unwrap_or_else(|| image_name.to_owned());

    let account = account(&user_wanted, passwd)?;
    let gid = match group_wanted {
        Some(wanted) => group_id(&wanted, group)?,
        None => account.gid,
    };
    let mut groups = vec![gid];
    let mut add = |gid: u32| {
        if !groups.contains(&gid) {
            groups.push(gid);
        }
    };
    if security.supplemental_groups_policy() == v1::SupplementalGroupsPolicy::Merge
        && let Some(name) = &account.name
    {
        Entry::all(group)
            .filter(|entry| entry.fields.get(3).is_some_and(|members| members.split(',').any(|member| member == name)))
            .filter_map(|entry| entry.number(2))
            .for_each(&mut add);
    }
    for gid in &security.supplemental_groups {
        add(number(*gid, "group")?);
    }
    Ok(Identity { uid: account.uid, gid, groups })
}

struct Account {
    uid: u32,
    gid: u32,
    name: Option<String>,
}

/// A number needs no entry in the image's `/etc/passwd`; a name does.
fn account(wanted: &str, passwd: &str) -> cri::Result<Account> {
    let wanted = if wanted.is_empty() { "0" } else { wanted };
    let uid = wanted.parse::<i64>().ok().map(|uid| number(uid, "user")).transpose()?;
    let found = Entry::all(passwd).find(|entry| match uid {
        Some(uid) => entry.number(2) == Some(uid),
        None => entry.fields[0] == wanted,
    });
    match (found, uid) {
        (Some(entry), _) => Ok(Account {
            uid: entry.number(2).ok_or_else(|| invalid(format!("user {wanted} has no number in passwd file")))?,
            gid: entry.number(3).unwrap_or(0),
            name: Some(entry.fields[0].to_owned()),
        }),
        (None, Some(uid)) => Ok(Account { uid, gid: 0, name: None }),
        (None, None) => Err(invalid(format!("unable to find user {wanted}: no matching entries in passwd file"))),
    }
}

fn group_id(wanted: &str, group: &str) -> cri::Result<u32> {
    if let Ok(gid) = wanted.parse::<i64>() {
        return number(gid, "group");
    }
    Entry::all(group)
        .find(|entry| entry.fields[0] == wanted)
        .and_then(|entry| entry.number(2))
        .ok_or_else(|| invalid(format!("unable to find group {wanted}: no matching entries in group file")))
}

fn number(id: i64, what: &str) -> cri::Result<u32> {
    i32::try_from(id)
        .ok()
        .and_then(|id| u32::try_from(id).ok())
        .ok_or_else(|| invalid(format!("{what} id {id} is out of range")))
}

/// A line of `/etc/passwd` or `/etc/group`.
struct Entry<'a> {
    fields: Vec<&'a str>,
}

impl<'a> Entry<'a> {
    /// Comments and broken lines are passed over, as the C library does.
    fn all(text: &'a str) -> impl Iterator<Item = Entry<'a>> {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| Entry { fields: line.split(':').collect() })
    }

    fn number(&self, field: usize) -> Option<u32> {
        self.fields.get(field)?.parse().ok()
    }
}
