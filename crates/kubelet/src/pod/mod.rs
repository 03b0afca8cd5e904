//! One pod: deciding ([`plan`]) and doing (`worker`).
