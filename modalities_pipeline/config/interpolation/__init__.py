"""What `${...}` means: resolvers, their failures, and where a value comes from."""
