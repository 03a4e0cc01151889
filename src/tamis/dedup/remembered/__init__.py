"""What the steps before a deduplication did, remembered by place: a later pass need not do it again."""
