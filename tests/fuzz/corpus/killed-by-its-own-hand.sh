echo a; kill -KILL $$; echo never
