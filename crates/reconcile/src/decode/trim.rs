//! The text of an object without what its copy does not keep, so that nothing is decoded to be dropped. What stays too long here is
//! taken away behind decoding (`cache/slim.rs`), so that only the usual text has to be understood.

use machinery::codec::Skim;

/// How much of an object its copy keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All but managed fields: they are half of many objects' text, and no component reads them of what it watches.
    Whole,
    /// A pod without what only kubelets read.
    SlimPod,
}

/// Fields of a container that only its kubelet reads.
const OF_CONTAINERS: [&[u8]; 8] = [
    b"args",
    b"command",
    b"lifecycle",
    b"livenessProbe",
    b"readinessProbe",
    b"startupProbe",
    b"volumeDevices",
    b"volumeMounts",
];

/// Sources of volumes that a kubelet makes of nothing else than the pod, ConfigMaps and its own disk.
const LOCAL: [&[u8]; 5] = [b"configMap", b"downwardAPI", b"emptyDir", b"hostPath", b"projected"];

/// The text with `null` for what is left out; nothing where all of it stays. Where a text is unusual the rest of it stays: its decoder
/// has the words for what is wrong.
pub(super) fn trim(text: &str, keep: Keep) -> Option<String> {
    let mut trimmed = Trimmed { text, out: String::new(), copied: 0 };
    let _usual = Skim::whole(text.as_bytes(), |skim| {
        skim.members(|value, name| match name {
            b"metadata" => trimmed.metadata(value, keep),
            b"spec" if keep == Keep::SlimPod => trimmed.spec(value),
            _ => value.skip(),
        })
    });
    trimmed.finish()
}

struct Trimmed<'a> {
    text: &'a str,
    out: String,
    /// So much of the text is in `out`, or left out.
    copied: usize,
}

impl<'a> Trimmed<'a> {
    fn metadata(&mut self, metadata: &mut Skim<'a>, keep: Keep) -> Option<()> {
        metadata.members(|value, name| {
            if name != b"managedFields" {
                return value.skip();
            }
            self.leave_out(value)?;
            // Of other kinds nothing else is left out, so nobody needs to pass over the rest.
            (keep == Keep::SlimPod).then_some(())
        })
    }

    fn spec(&mut self, spec: &mut Skim<'a>) -> Option<()> {
        spec.members(|value, name| match name {
            b"containers" | b"initContainers" => value.items(|container| self.container(container)),
            b"volumes" => self.volumes(value),
            _ => value.skip(),
        })
    }

    fn container(&mut self, container: &mut Skim<'a>) -> Option<()> {
        container.members(|value, name| match name {
            b"env" => {
                let start = value.at();
                // Who cleans up tokens must know which Secrets are in use.
                let secrets = str::from_utf8(value.take()?).ok()?.contains("secretKeyRef");
                if secrets { Some(()) } else { self.replace(start, value.at(), "null") }
            }
            _ if OF_CONTAINERS.contains(&name) => self.leave_out(value),
            _ => value.skip(),
        })
    }

    fn volumes(&mut self, volumes: &mut Skim<'a>) -> Option<()> {
        let (start, mut kept) = (volumes.at(), Vec::new());
        volumes.items(|volume| {
            let (from, mut local) = (volume.at(), false);
            volume.members(|source, name| {
                let text = str::from_utf8(source.take()?).ok()?;
                let secrets = name == b"projected" && text.contains("secret");
                local |= LOCAL.contains(&name) && text != "null" && !secrets;
                Some(())
            })?;
            if !local {
                kept.push(self.text.get(from..volume.at())?);
            }
            Some(())
        })?;
        self.replace(start, volumes.at(), &format!("[{}]", kept.join(",")))
    }

    fn leave_out(&mut self, value: &mut Skim<'a>) -> Option<()> {
        let start = value.at();
        value.skip()?;
        self.replace(start, value.at(), "null")
    }

    fn replace(&mut self, start: usize, end: usize, with: &str) -> Option<()> {
        if self.out.capacity() == 0 {
            self.out.reserve_exact(self.text.len());
        }
        self.out.push_str(self.text.get(self.copied..start)?);
        self.out.push_str(with);
        self.copied = end;
        Some(())
    }

    fn finish(mut self) -> Option<String> {
        if self.copied == 0 {
            return None;
        }
        self.out.push_str(self.text.get(self.copied..)?);
        Some(self.out)
    }
}
