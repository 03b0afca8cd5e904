//! What a PUT or PATCH to a subresource proposes, as an object of the parent's kind.

use machinery::status::Status;
use serde_json::Value;

use crate::call::{Call, Strictness, decode_object};
use crate::decode::{self, Expected};
use crate::target::Verb;
use crate::verbs::patch::PatchBody;
use crate::write::Owner;

pub struct Proposal {
    pub dry_run: bool,
    pub owner: Owner,
    strictness: Strictness,
    content: Content,
}

enum Content {
    Whole(Value),
    Patch(PatchBody),
}

impl Proposal {
    pub fn read(call: &Call, verb: Verb, body: &[u8]) -> Result<Proposal, Status> {
        let options = if verb == Verb::Patch { "PatchOptions" } else { "UpdateOptions" };
        let strictness = call.strictness(options)?;
        let content = match verb {
            Verb::Patch => Content::Patch(PatchBody::read(call, body)?),
            _ => Content::Whole(decode_object(call, &call.resource, body, strictness)?),
        };
        let (dry_run, owner) = (call.dry_run(options)?, Owner::Update(call.field_manager()?));
        Ok(Proposal { dry_run, owner, strictness, content })
    }

    /// The proposed object, given what is there now.
    pub fn of(&self, call: &Call, current: &Value) -> Result<Value, Status> {
        let patch = match &self.content {
            Content::Whole(object) => return Ok(object.clone()),
            Content::Patch(patch) => patch,
        };
        let mut next = patch.apply(call.resource.shape(), current.clone())?;
        let expected = Expected::of(&call.resource);
        decode::typed(&mut next, &expected, Default::default(), self.strictness, &mut |text| call.warn(text))?;
        Ok(next)
    }
}
