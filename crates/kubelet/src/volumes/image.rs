//! `image`: the files of an image, which the runtime shows. Pulling it is the work of `images`.

use futures::FutureExt;

use super::{Error, Problem, Request, Type, Volume};

pub(super) static TYPE: Type = Type { is: |volume| volume.image.is_some(), mount: |request| mount(request).boxed() };

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let reference = request.volume.image.as_ref().and_then(|source| source.reference.clone()).unwrap_or_default();
    match reference.as_str() {
        "" => Err(Error::NoReference.into()),
        _ => Ok(Volume::Image { reference }),
    }
}
