//! Getting images: pull policy, credentials, back-off, bounded parallel pulls, and what users are told.
