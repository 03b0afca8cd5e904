//! Any CRI v1 endpoint over gRPC, behind the same trait.
