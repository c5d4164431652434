exec nosuchprogram
echo never
